"""Sentences made from runs: a number stands in a lesson's prose because a cell put it there.

    lab.say("08.4", spread=max(spread))

The sentence and what the lesson goes on to build upon are kept with the lesson, in `minips.lab.course`. Where a run
does not bear it out, the sentence says so, with the figure that was measured and the one that was expected, and the
lesson goes on.
"""

from typing import Any

from IPython.display import display

from minips.lab.course.questions import as_html, completed


class Said:
    """A sentence that a run has completed; ``holds`` is False where it came out otherwise than expected."""

    def __init__(self, text: str, holds: bool) -> None:
        self.text, self.holds = text, holds

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return f"<p>{'' if self.holds else '⚠ '}{as_html(self.text)}</p>"


def say(key: str, **values: Any) -> None:
    """Show the sentence of this key with the values in it; `Disagreement` in an unattended run that it is not true of,
    unless it is timed.
    """
    display(Said(*completed(key, **values)))  # type: ignore[no-untyped-call]
