"""Texts as HTML."""

import html


def status(text: str) -> str:
    """Return a text as HTML that screen readers read out when it changes."""
    return f"<div role='status'>{as_html(text)}</div>"


def as_html(text: str) -> str:
    """Return a text as HTML that keeps its line breaks."""
    return html.escape(text).replace("\n", "<br>")
