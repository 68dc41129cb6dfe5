"""Predictions of results: cells that show a result wait until the reader has predicted it.

    guess = lab.predict("trust.1")          # shows the question of this key

    guess.require()                         # the next cell prints one line and is skipped until there is a prediction
    ...                                     # measure
    guess.compare(share=lied_to / honest)   # decides which option came true, and shows it beside the prediction

The lesson's folder in its course contains the questions, and the rules that decide. A prediction is final: running the
cell again does not change it, nor does a new kernel. In a notebook, a waiting cell raises no error, so that "Run all"
continues: the cell prints its question, and so does every later cell that uses a name that the skipped cell would have
defined.

With ``MINIPS_AUTOPLAY=1`` in the environment (unattended runs), no cell waits, and no prediction is shown.
"""

import ast
import dis
import html
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import CodeType
from typing import Any

import ipywidgets
from IPython import get_ipython
from IPython.display import display

from minips.lab.course import state
from minips.lab.course.questions import (
    QUESTIONS,
    Estimate,
    Outcome,
    Question,
    find,
    settled,
    show_line,
    tells_if_retired,
)
from minips.lab.course.verdicts import CSS, Measured, result, to_note
from minips.lab.style import STYLE, WIDE
from minips.lab.texts import as_html, status
from minips.results.tables import html_rows

TWICE = """<style>
.jp-mod-rendered:has(+ .jp-CodeCell .minips-{key}:not(.jupyter-widgets-disconnected)):has(
    .jp-RenderedMarkdown > p:first-child > strong:first-child):has(
    .jp-RenderedMarkdown > p + ul:last-child > li:nth-child({count}):last-child) > .jp-Cell-inputWrapper {{
    display: none}}
.minips-panel.minips-{key}.jupyter-widgets-disconnected::before {{content: "The kernel was restarted or ended. Run the \
cells that import lab, then this cell. A prediction that is made stays made."}}
</style>"""
"""Hides the question in the Markdown cell above, for readers without a kernel, while the panel is alive: a paragraph
that begins in bold, and a list of as many items as there are options."""
MAKE, MADE = "This is my prediction", "It is made"
"""The button's text before and after the prediction."""
_kept: dict[str, str] = {}
"""Maps each key to its prediction, which remains when the cell is run again, or in a new kernel."""


class PredictFirstError(Exception):
    """Raised by `Guess.require` outside notebooks. IPython shows its sentence without a traceback."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


class Guess:
    """A question, and the reader's answer: an option, or a number, stored as text."""

    def __init__(self, question: Question | Estimate) -> None:
        self.question = question
        self.unattended = state.autoplay()
        noted = state.noted("question").get(question.key, {})
        if question.key not in _kept and question.fits(before := noted.get("predicted", "")):
            _kept[question.key] = before
        # The Tab key stops at each option, since JupyterLab does not pass on the arrow keys.
        if isinstance(question, Question):
            self.choice = ipywidgets.RadioButtons(options=question.options, description="Your prediction", **WIDE)
        else:
            self.choice = ipywidgets.Text(description=f"Your prediction ({question.unit})", **WIDE)
        self.button = ipywidgets.Button(
            description=MAKE,
            tooltip="It is final then.",
            layout={"width": "auto", "align_self": "flex-start"},
        )
        self.note = ipywidgets.HTML()
        self.choice.observe(lambda _: self._changed(), "value")
        self.button.on_click(lambda _: self.commit())
        key = re.sub(r"\W", "-", question.key)
        style = STYLE + TWICE.format(key=key, count=len(getattr(question, "options", "?")))
        title = ipywidgets.HTML(f"{style}<b>Predict first.</b> {html.escape(question.text)}")
        self.panel = ipywidgets.VBox([title, self.choice, self.button, self.note])
        self.panel.add_class("minips-panel").add_class(f"minips-{key}")
        self._show()

    @property
    def value(self) -> str | None:
        """The prediction; None if there is none yet."""
        kept = _kept.get(self.question.key, "")
        return kept if self.question.fits(kept) else None

    @property
    def open(self) -> bool:
        """True while the question still waits for a prediction."""
        return not self.unattended and self.value is None

    @property
    def asks(self) -> str:
        """The line that a waiting cell prints."""
        return f"This cell waits for your prediction: {self.question.text}"

    def commit(self) -> None:
        """Make the chosen answer the final prediction. ValueError if none is chosen."""
        if self.value is None:
            if not self.question.fits(chosen := self._chosen()):
                choose = "Choose one of the options" if isinstance(self.question, Question) else "Type a number above 0"
                raise ValueError(f"{choose} first.")
            _kept[self.question.key] = chosen
            with self.button.hold_sync():  # a button disabled even briefly would lose the keyboard's focus
                self._show(state.note("question", self.question.key, predicted=chosen))
                self.button.disabled = False
                self.button.description = MADE

    def require(self) -> None:
        """Raise PredictFirstError, without a traceback, until there is a prediction. A notebook skips the cell."""
        if self.open:
            raise PredictFirstError(f"{self.asks} Choose an answer above, then run this cell again.")

    def compare(self, **values: Any) -> "GuessedAndMeasured":
        """Return the prediction, the outcome of the measured ``values``, and the reason. A value may be a
        `minips.lab.interval`: its mean decides. Raises like `settled`.
        """
        self.require()
        predicted = None if self.unattended else self.value
        measured = {name: Measured.of(value) for name, value in values.items()}
        outcome = settled(self.question, **{name: one.value for name, one in measured.items()})
        result = GuessedAndMeasured(self.question, predicted, outcome, measured)
        if self.value is not None:
            facts = {"predicted": self.value, "measured": outcome.measured, "values": to_note(measured)}
            state.note("question", self.question.key, **facts, verdict=result.verdict)
        return result

    def _chosen(self) -> str:
        """The answer in the control now; a number may have a decimal comma."""
        answer = self.choice.value or ""
        return answer if isinstance(self.question, Question) else answer.strip().replace(",", ".")

    def _changed(self) -> None:
        self.button.disabled = self.value is not None or not self.question.fits(self._chosen())

    def _show(self, unkept: str = "") -> None:
        done = self.value is not None
        self.choice.value = self.value if done else None if isinstance(self.question, Question) else ""
        self.choice.disabled = done
        self.button.disabled = True
        words = "It is noted. Run the next cell." if done else "The cells that show the result wait for it."
        self.note.value = status(f"{words} {unkept}".strip())

    def __repr__(self) -> str:
        return f"<Prediction: {self.value or 'none yet'}>"


@dataclass(repr=False)
class GuessedAndMeasured:
    """The outcome of a run, beside the prediction if one was asked for."""

    question: Question | Estimate
    predicted: str | None
    outcome: Outcome
    measured: Mapping[str, Measured]

    @property
    def verdict(self) -> str:
        """The verdict on the prediction, in words; empty if none was asked for."""
        return "" if self.predicted is None else self.question.score(self.predicted, self.outcome.measured)

    def rows(self) -> list[tuple[str, str]]:
        """Return a row each for the question, the prediction, the measurement and the conclusion."""
        rows = [("Question", self.question.text)]
        if self.predicted is not None:
            rows.append(("You predicted", f"{self.predicted} {self.question.unit}".strip()))
        if self.outcome.expected is None:
            rows.append(("Measured", self.outcome.measured))
        else:
            rows.append(("Measured", f"⚠ {self.outcome.measured}"))
            rows.append(
                ("Expected", f"{self.outcome.expected}. Here it came out otherwise; the text goes on from this.")
            )
        if self.verdict:
            rows.append(("", self.verdict))
        return [*rows, ("Because", self.outcome.because)]

    def __repr__(self) -> str:
        return "\n".join(f"{name}: {value}" if name else value for name, value in self.rows())

    def _repr_html_(self) -> str:
        if self.predicted is None:
            return f"<table>{html_rows(self.rows(), style='text-align:left', cell=as_html)}</table>"
        rows = dict(self.rows())
        reasons = [f"{name}: {rows[name]}" for name in ("Expected", "Because") if name in rows]
        drawn = result(self.question, self.predicted, self.outcome.measured, self.measured, rows["Measured"], reasons)
        return f"<style>{CSS}</style>{drawn}"


class _Lock(ast.NodeTransformer):
    """Transforms cells before IPython compiles them: a cell that must wait becomes one that shows the reason.

    A cell must wait if it calls ``require`` or ``compare`` of a question without a prediction, or uses a name that a
    waiting cell would have defined.
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
        return ast.parse(f"__import__({show_line.__module__!r}, fromlist=['any']).show_line({missing.asks!r})")


_LOADS = {"LOAD_NAME", "LOAD_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS"}


def _required(cell: ast.Module, names: dict[str, Any]) -> Iterator[Guess]:
    for node in cell.body:
        match node:
            case ast.Expr(ast.Call(ast.Attribute(ast.Name(name), "require" | "compare"))):
                if isinstance(prediction := names.get(name), Guess):
                    yield prediction


def _names_of(cell: ast.Module) -> tuple[set[str], set[str]]:
    """Return, from the cell's bytecode, the global names that it reads before binding them, and those it binds."""
    reads: set[str] = set()
    binds: set[str] = set()
    codes: list[CodeType] = []
    with suppress(SyntaxError):  # IPython reports the syntax error
        codes.append(compile(cell, "a cell", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT))
    for code in codes:  # the loop appends the code of functions and classes in it
        codes += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
        own = binds if code is codes[0] else set()  # names bound in a class are not global
        for step in dis.get_instructions(code):
            if step.opname == "STORE_GLOBAL":
                binds.add(step.argval)
            elif step.opname in ("STORE_NAME", "DELETE_NAME"):
                own.add(step.argval)
            elif step.opname in _LOADS and step.argval not in own | binds:
                reads.add(step.argval)
    return reads, binds


@tells_if_retired
def predict(key: str) -> Guess:
    """Ask the question with this key, and show its options. See the module for `Guess.require` and `Guess.compare`."""
    guess = Guess(find("question", QUESTIONS, key))
    shell: Any = get_ipython()
    if shell and not any(isinstance(one, _Lock) for one in shell.ast_transformers):
        shell.ast_transformers.append(_Lock(shell.user_ns))
    asked = guess.question
    options = asked.options if isinstance(asked, Question) else (f"a number ({asked.unit})",)
    text = "\n".join([f"Predict first. {asked.text}", *(f"  ( ) {option}" for option in options)])
    display({**guess.panel._repr_mimebundle_(), "text/plain": text}, raw=True)  # type: ignore[no-untyped-call]
    return guess
