"""Predict before you see: the cells that show a result ask first whether a prediction is in.

    guess = lab.predict("Which is faster on a 100 Mbit/s link?", ["exact", "one bit per value"])

    guess.require()             # the next cell: stops here, with one sentence, until something is chosen above
    ...                         # measure
    guess.compare("exact")      # shows what was predicted beside what was measured

With ``MINIPS_AUTOPLAY=1`` in the environment (unattended runs) a prediction answers itself.
"""

import html
from collections.abc import Sequence
from typing import Any

import ipywidgets
from IPython.display import display

from minips.lab import state

_kept: dict[str, str] = {}
"""What was predicted so far, by question: a cell that is run again does not forget, nor does a new kernel."""


class PredictFirstError(Exception):
    """Raised by `Prediction.require`; a notebook shows its sentence without a traceback."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


class Prediction:
    """One question and, once it is given, the answer of whoever reads."""

    def __init__(self, question: str, options: Sequence[str]) -> None:
        if len(options) < 2 or len(set(options)) < len(options):
            raise ValueError(f"A prediction needs two different options or more; got {list(options)!r}.")
        self.question, self.options = question, tuple(options)
        self.by_itself = False
        if state.autoplay():
            self.by_itself = True
            _kept[question] = self.options[0]
        elif question not in _kept and (before := state.predicted().get(question)) in self.options:
            _kept[question] = before
        self.choice: Any = ipywidgets.RadioButtons(
            options=self.options,
            value=_kept.get(question) if _kept.get(question) in self.options else None,
            description="Your prediction",
            layout={"width": "auto"},
            style={"description_width": "initial"},
        )
        self.note: Any = ipywidgets.HTML(self._note())
        self.choice.observe(self._chosen, "value")
        title = ipywidgets.HTML(f"<b>Predict first.</b> {html.escape(question)}")
        self.panel: Any = ipywidgets.VBox([title, self.choice, self.note])

    @property
    def value(self) -> str | None:
        """What was predicted; None so far."""
        return _kept.get(self.question)

    def require(self) -> None:
        """PredictFirstError, a sentence without a traceback, while no prediction is in."""
        if self.value is None:
            raise PredictFirstError(
                f"Make your prediction first: choose an answer under “{self.question}” above, then run this cell again."
            )

    def compare(self, measured: str) -> "Comparison":
        """The prediction beside what was ``measured``, one of the options. From now on the prediction stands."""
        self.require()
        if measured not in self.options:
            raise ValueError(f"Expected one of the options, {', '.join(map(repr, self.options))}; got {measured!r}.")
        self.choice.disabled = True
        state.note(question=self.question, predicted=str(self.value), measured=measured)
        return Comparison(self.question, str(self.value), measured, self.by_itself)

    def _chosen(self, change: Any) -> None:
        if change["new"] is not None:
            _kept[self.question] = change["new"]
            unkept = state.note(question=self.question, predicted=change["new"])
            self.note.value = f"{self._note()} {html.escape(unkept)}".strip()

    def _note(self) -> str:
        return "Noted. Run the next cell." if self.value else "The next result stays locked until you choose."

    def __repr__(self) -> str:
        return f"<Prediction: {self.value or 'none yet'}>"


class Comparison:
    """What was predicted beside what was measured."""

    def __init__(self, question: str, predicted: str, measured: str, by_itself: bool) -> None:
        self.question, self.predicted, self.measured, self.by_itself = question, predicted, measured, by_itself

    @property
    def right(self) -> bool:
        """True where the prediction came true."""
        return self.predicted == self.measured

    def rows(self) -> list[tuple[str, str]]:
        """Question, prediction, measurement and what to make of them."""
        who = "Predicted (nobody was asked)" if self.by_itself else "You predicted"
        verdict = "They agree." if self.right else "They differ: what did the prediction overlook?"
        return [("Question", self.question), (who, self.predicted), ("Measured", self.measured), ("", verdict)]

    def __repr__(self) -> str:
        return "\n".join(f"{name}: {value}" if name else value for name, value in self.rows())

    def _repr_html_(self) -> str:
        cells = "".join(
            f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
            f"<td style='text-align:left'>{html.escape(value)}</td></tr>"
            for name, value in self.rows()
        )
        return f"<table>{cells}</table>"


def predict(question: str, options: Sequence[str]) -> Prediction:
    """Ask, and show the options to choose from. See the module's words on `Prediction.require` and
    `Prediction.compare`.
    """
    prediction = Prediction(question, options)
    text = "\n".join([f"Predict first. {question}", *(f"  ( ) {option}" for option in prediction.options)])
    display({**prediction.panel._repr_mimebundle_(), "text/plain": text}, raw=True)  # type: ignore[no-untyped-call]
    return prediction
