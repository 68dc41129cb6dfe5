"""Tables of texts: for a terminal, and in HTML."""

import html
from collections.abc import Callable, Iterable, Sequence


def aligned(rows: Sequence[Sequence[str]], to: str = ">") -> list[str]:
    """A line for each row, the cells of a column under each other, moved to the right, or ``to`` the left (``<``)."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(f"{cell:{to}{width}}" for cell, width in zip(row, widths, strict=True)) for row in rows]


def html_rows(
    rows: Iterable[Sequence[str]], headings: int = 1, style: str = "", cell: Callable[[str], str] = html.escape
) -> str:
    """The rows of a table, of each of which so many cells are headings; ``cell`` makes HTML of a text."""
    look = f" style='{style}'" if style else ""

    def tagged(number: int, text: str) -> str:
        tag = "th" if number < headings else "td"
        return f"<{tag}{look}>{cell(text)}</{tag}>"

    return "".join(f"<tr>{''.join(tagged(*numbered) for numbered in enumerate(row))}</tr>" for row in rows)
