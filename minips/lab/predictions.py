"""Predict before you see: the cells that show a result wait for a prediction.

    guess = lab.predict("Which is faster on a 100 Mbit/s link?", ["exact", "one bit per value"])

    guess.require()             # the next cell: skipped, with one line, until a prediction is in
    ...                         # measure
    guess.compare("exact")      # shows what was predicted beside what was measured

A prediction is final once it is made: in this kernel, in the next one, and where the cell is run again. In a notebook
a cell that waits is no error, so that "Run all" goes on: the cell prints its question, and so does every later cell
that uses what the skipped cell would have defined.

With ``MINIPS_AUTOPLAY=1`` in the environment (unattended runs) nothing waits, and nothing is said to be predicted.
"""

import ast
import dis
import html
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import CodeType
from typing import Any

import ipywidgets
from IPython import get_ipython
from IPython.display import display

from minips import seeds
from minips.lab import state
from minips.lab.style import STYLE

_kept: dict[str, str] = {}
"""What was predicted so far, by question: a cell that is run again does not forget, nor does a new kernel."""


class PredictFirstError(Exception):
    """Raised by `Guess.require` outside notebooks; IPython shows its sentence without a traceback."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


class Guess:
    """One question, and the reader's answer. The order of the options follows from the question alone."""

    def __init__(self, question: str, options: Sequence[str]) -> None:
        if len(options) < 2 or len(set(options)) < len(options):
            raise ValueError(f"A prediction needs two different options or more; got {list(options)!r}.")
        self.question = question
        self.options: tuple[str, ...] = tuple(seeds.options(question).permutation(list(options)).tolist())
        self.unattended = state.autoplay()
        if question not in _kept and (before := state.predicted().get(question)) in self.options:
            _kept[question] = before
        # Each option is a stop of its own for the Tab key: JupyterLab keeps the arrow keys to itself.
        wide = {"layout": {"width": "auto"}, "style": {"description_width": "initial"}}
        self.choice = ipywidgets.RadioButtons(options=self.options, description="Your prediction", **wide)
        self.button = ipywidgets.Button(
            description="This is my prediction",
            tooltip="It is final then.",
            layout={"width": "auto", "align_self": "flex-start"},
        )
        self.note = ipywidgets.HTML()
        self.choice.observe(self._chosen, "value")
        self.button.on_click(lambda _: self.commit())
        title = ipywidgets.HTML(f"{STYLE}<b>Predict first.</b> {html.escape(question)}")
        self.panel = ipywidgets.VBox([title, self.choice, self.button, self.note])
        self.panel.add_class("minips-panel")
        self._show()

    @property
    def value(self) -> str | None:
        """The prediction; None so far."""
        kept = _kept.get(self.question)
        return kept if kept in self.options else None

    @property
    def open(self) -> bool:
        """True while a prediction is asked for and none is in."""
        return not self.unattended and self.value is None

    @property
    def asks(self) -> str:
        """The line of a cell that waits."""
        return f"This cell waits for your prediction: {self.question}"

    def commit(self) -> None:
        """Make the chosen answer the prediction, for good. ValueError where none is chosen."""
        if self.value is None:
            if self.choice.value is None:
                raise ValueError("Choose one of the options first.")
            _kept[self.question] = self.choice.value
            self._show(state.note(question=self.question, predicted=self.choice.value))

    def require(self) -> None:
        """PredictFirstError, without a traceback, while no prediction is in; a notebook skips the cell instead."""
        if self.open:
            raise PredictFirstError(f"{self.asks} Choose an answer above, then run this cell again.")

    def compare(self, measured: str, because: str = "") -> "GuessedAndMeasured":
        """The prediction beside what was ``measured``, one of the options, and why it came out so."""
        self.require()
        if measured not in self.options:
            raise ValueError(f"Expected one of the options, {', '.join(map(repr, self.options))}; got {measured!r}.")
        if self.value is not None:
            state.note(question=self.question, predicted=self.value, measured=measured)
        return GuessedAndMeasured(self.question, None if self.unattended else self.value, measured, because)

    def _chosen(self, change: Any) -> None:
        self.button.disabled = self.value is not None or change["new"] is None

    def _show(self, unkept: str = "") -> None:
        done = self.value is not None
        self.choice.value = self.value
        self.choice.disabled = done
        self.button.disabled = True
        words = "It is noted. Run the next cell." if done else "The cells that show the result wait for it."
        self.note.value = html.escape(f"{words} {unkept}".strip())

    def __repr__(self) -> str:
        return f"<Prediction: {self.value or 'none yet'}>"


@dataclass(repr=False)
class GuessedAndMeasured:
    """The prediction, where one was asked for, beside the measurement."""

    question: str
    predicted: str | None
    measured: str
    because: str = ""

    @property
    def right(self) -> bool:
        """True where the prediction came true."""
        return self.predicted == self.measured

    def rows(self) -> list[tuple[str, str]]:
        """Question, prediction, measurement and what to make of them."""
        rows = [("Question", self.question)]
        if self.predicted is not None:
            rows.append(("You predicted", self.predicted))
        rows.append(("Measured", self.measured))
        if self.predicted is not None:
            rows.append(("", "They agree." if self.right else "They differ."))
        return [*rows, ("Because", self.because)] if self.because else rows

    def __repr__(self) -> str:
        return "\n".join(f"{name}: {value}" if name else value for name, value in self.rows())

    def _repr_html_(self) -> str:
        cells = "".join(
            f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
            f"<td style='text-align:left'>{html.escape(value)}</td></tr>"
            for name, value in self.rows()
        )
        return f"<table>{cells}</table>"


class _Lock(ast.NodeTransformer):
    """Part of IPython's way from a cell's text to its code: a cell that has to wait becomes one that prints why.

    It waits where it calls ``require`` of a prediction that is not in, or uses a name that such a cell would have
    defined.
    """

    def __init__(self, names: dict[str, Any]) -> None:
        self._names = names
        self._waiting: dict[str, Guess] = {}

    def visit_Module(self, cell: ast.Module) -> ast.Module:
        used, defined = _names_of(cell)
        wanted = [*_required(cell, self._names), *(self._waiting[name] for name in sorted(used & {*self._waiting}))]
        missing = next((prediction for prediction in wanted if prediction.open), None)
        if missing is None:
            for name in defined:
                self._waiting.pop(name, None)
            return cell
        self._waiting |= dict.fromkeys(defined, missing)
        return ast.parse(f"print({missing.asks!r})")


_LOADS = {"LOAD_NAME", "LOAD_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS"}


def _required(cell: ast.Module, names: dict[str, Any]) -> Iterator[Guess]:
    for node in cell.body:
        match node:
            case ast.Expr(ast.Call(ast.Attribute(ast.Name(name), "require" | "compare"))):
                if isinstance(prediction := names.get(name), Guess):
                    yield prediction


def _names_of(cell: ast.Module) -> tuple[set[str], set[str]]:
    """The cell's global names: those that it reads before it binds them, and those that it binds, by its bytecode."""
    reads: set[str] = set()
    binds: set[str] = set()
    codes: list[CodeType] = []
    with suppress(SyntaxError):  # of which IPython will tell
        codes.append(compile(cell, "a cell", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT))
    for code in codes:  # followed by those of the functions and classes in it
        codes += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
        own = binds if code is codes[0] else set()  # a class has names of its own
        for step in dis.get_instructions(code):
            if step.opname == "STORE_GLOBAL":
                binds.add(step.argval)
            elif step.opname in ("STORE_NAME", "DELETE_NAME"):
                own.add(step.argval)
            elif step.opname in _LOADS and step.argval not in own | binds:
                reads.add(step.argval)
    return reads, binds


def predict(question: str, options: Sequence[str]) -> Guess:
    """Ask, and show the options to choose from; see the module on `Guess.require` and `Guess.compare`."""
    prediction = Guess(question, options)
    shell: Any = get_ipython()
    if shell and not any(isinstance(one, _Lock) for one in shell.ast_transformers):
        shell.ast_transformers.append(_Lock(shell.user_ns))
    text = "\n".join([f"Predict first. {question}", *(f"  ( ) {option}" for option in prediction.options)])
    display({**prediction.panel._repr_mimebundle_(), "text/plain": text}, raw=True)  # type: ignore[no-untyped-call]
    return prediction
