"""Sentences made from runs: a number stands in a lesson's prose because a cell put it there.

    lab.say("B sent {share:.0%} of A's bytes.", share=b.bytes_sent / a.bytes_sent, expect="share < 0.2")

``expect`` is what the lesson goes on to build upon, over the same values. Where it does not hold, the sentence says so,
with the figure that was measured and the one that was expected, and the lesson goes on. In unattended runs
(``MINIPS_AUTOPLAY=1``) it has to hold, unless it is ``timed``: seconds are the machine's affair.
"""

import html
from typing import Any

from IPython.display import display

from minips.lab import state


class Sentence:
    """One that a run has completed; ``holds`` is False where it came out otherwise than expected."""

    def __init__(self, text: str, expect: str, holds: bool) -> None:
        self.text = text if holds else f"{text} Expected was {expect}: here it came out otherwise."
        self.holds = holds

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return f"<p>{'' if self.holds else '⚠ '}{html.escape(self.text)}</p>"


def say(template: str, *, expect: str = "", timed: bool = False, **values: Any) -> None:
    """Show the template with the values in it, formatted as `str.format` does; AssertionError in an unattended run
    where ``expect``, a Python expression over the values, is false and is not ``timed``.
    """
    holds = not expect or bool(eval(expect, {"__builtins__": {"abs": abs, "all": all, "min": min, "max": max}}, values))
    sentence = Sentence(template.format(**values), expect, holds)
    if not holds and not timed and state.autoplay():
        given = ", ".join(f"{name} = {value!r}" for name, value in values.items())
        raise AssertionError(f"Expected {expect}; got {given}.")
    display(sentence)  # type: ignore[no-untyped-call]
