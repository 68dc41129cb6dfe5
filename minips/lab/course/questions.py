"""Questions and sentences of the lessons, by key: ``question("trust.1", …)`` in a course's package is
``lab.predict("trust.1")`` in the notebook, ``sentence("trust.3", …)`` is ``lab.say("trust.3", …)``, and so on.

A notebook passes measured values by name. Each option has a reason, and a rule that decides from these values whether
the option came true. The lesson's text continues from the `Expected` option. If a run has another outcome, the lesson
shows both and continues. An unattended run then ends with a `Disagreement`, unless the question is ``timed``, since
times depend on the machine.
"""

import ast
import inspect
import re
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial, wraps
from string import Formatter
from typing import Any, NamedTuple, TypeVar

import numpy as np

from minips import seeds
from minips.lab.course import state
from minips.lab.course.best import Figure
from minips.lab.course.courses import add, course_of, is_retired, lesson_of, numbers
from minips.lab.texts import status
from minips.words import join_names, suggestion

NONE = "none of these"
"""The outcome if no rule holds, or if a value is NaN."""
KINDS = {
    "comparison": "schemes that train are compared, each at its own best rate: all values come from a `Best`",
    "count": "what is counted, such as bytes, steps or values: the same in each run with the same seeds",
    "time": "seconds on this machine, or ratios of them",
    "identity": "two values are equal, or a formula or a bound holds",
    "single": "what one run, one input or one scheme shows",
}
"""The kinds of what a sentence, a question or a prompt says."""
BUILTINS = {"abs": abs, "all": all, "any": any, "len": len, "min": min, "max": max, "sum": sum}
"""The functions that the ``expect`` of a sentence may call."""
CALLS = {"question": "predict", "sentence": "say", "prompt": "answer", "exercise": "check"}
"""Maps what has a key to the function that a lesson's cells call with it; ``RETIRED`` of a lesson has their names."""
RIGHT, NEAR = 1.25, 2.0
"""A prediction is right, or near, up to this ratio of the larger to the smaller of predicted and measured number."""

T = TypeVar("T")


class Retired(ValueError):  # noqa: N818, it is no fault of the learner
    """Raised for a key of an earlier edition; its text says where the lesson of today is."""


class Disagreement(AssertionError):  # noqa: N818, it is the outcome of a run
    """Raised if an unattended run has another outcome than the lesson expects."""


class Outcome(NamedTuple):
    """A run's answer to a question. ``expected`` is the outcome that the lesson's text assumes, if it differs."""

    measured: str
    because: str
    expected: str | None = None


class Wording(NamedTuple):
    """The words, the format and the unit of a measured value, such as ``"time: {:.2f} s"``."""

    label: str
    figure: str = "{:,g}"
    unit: str = ""

    @classmethod
    def of(cls, text: str) -> "Wording":
        """Return the form that a text describes. ValueError for a text without one field in braces after a colon.

        >>> Wording.of("change: {:+.1f} percentage points").text(-2.04, 0.61)
        '-2.0 ± 0.6 percentage points'
        """
        if not (parts := re.fullmatch(r"(.+): ({[^{}]*})([^{}]*)", text)):
            raise ValueError(f"Expected the form of a measured value, such as 'time: {{:.2f}} s'; got {text!r}.")
        return cls(*parts.groups())

    def text(self, value: float, half: float = 0.0) -> str:
        """Return a value, with half of its interval and its unit."""
        digits = _round_value if self.figure == "{:,g}" else float
        interval = f" ± {self.figure.replace('+', '').format(digits(half))}" if half else ""
        return f"{self.figure.format(digits(value))}{interval}{self.unit}"


class Option(NamedTuple):
    """A possible answer, the rule that decides from the measured values whether it came true, and the reason for it."""

    text: str
    rule: Callable[..., Any]
    because: str


class Expected(Option):
    """The option that the lesson's text assumes."""


@dataclass(frozen=True)
class Question:
    """A question with options. The text ``otherwise`` is shown if none of them comes true. ``shown`` gives measured
    values by name in the words and the unit of a learner, see `Wording`.
    """

    key: str
    text: str
    choices: tuple[Option, ...]
    expected: str
    otherwise: str
    timed: bool = False
    kind: str = ""
    shown: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for text in self.shown.values():
            Wording.of(text)
        texts = [choice.text for choice in self.choices]
        if len(set(texts)) < max(2, len(texts)) or self.expected not in texts:
            raise ValueError(f"{self.key}: expected at least two options, all different, including {self.expected!r}.")

    @property
    def options(self) -> tuple[str, ...]:
        """The texts of the options, in a random order that depends only on the question's text."""
        return tuple(seeds.options(self.text).permutation([choice.text for choice in self.choices]).tolist())

    def outcome(self, **values: Any) -> Outcome:
        """Return the option that came true. If several did, return the first; unattended runs raise ValueError.
        TypeError for values with other names than the rules' arguments.
        """
        for choice in self.choices:
            _check_arguments(self.key, choice, values)
        true = [] if _has_nan(values) else [choice for choice in self.choices if choice.rule(**values)]
        if len(true) > 1 and state.autoplay():
            raise ValueError(f"{self.key}: {', '.join(repr(one.text) for one in true)} are all true of {values}.")
        measured, because = (true[0].text, true[0].because) if true else (NONE, self.otherwise)
        return Outcome(measured, because, None if measured == self.expected else self.expected)

    @property
    def unit(self) -> str:
        """The unit of an answer: none."""
        return ""

    def fits(self, answer: str) -> bool:
        """Return True for an option of the question."""
        return answer in self.options

    def form(self, name: str) -> Wording:
        """Return the words, the format and the unit of a measured value."""
        return Wording.of(self.shown[name]) if name in self.shown else Wording(name)

    def agrees(self, predicted: str, measured: str) -> bool:
        """Return True if the prediction came true."""
        return predicted == measured

    def judge(self, predicted: str, measured: str) -> str:
        """Return the verdict on a prediction in one word: right or wrong."""
        return "right" if self.agrees(predicted, measured) else "wrong"

    def score(self, predicted: str, measured: str) -> str:
        """Return the verdict on a prediction, in words."""
        return "They agree." if self.agrees(predicted, measured) else "They differ."


@dataclass(frozen=True)
class Estimate:
    """A question that is answered with a number, and scored by its ratio to the measured number. The lesson's text
    assumes a measurement between the two limits in ``expected``.
    """

    key: str
    text: str
    unit: str
    expected: tuple[float, float]
    because: str
    otherwise: str
    timed: bool = False
    kind: str = ""

    def __post_init__(self) -> None:
        try:
            least, largest = self.expected
            fits = 0 < least <= largest
        except (TypeError, ValueError):
            fits = False
        if not fits:
            raise ValueError(f"{self.key}: expected is two numbers above 0, the smaller first; got {self.expected!r}.")

    def outcome(self, **values: float) -> Outcome:
        """Return the measured value as an outcome. ValueError unless exactly one value is given."""
        if len(values) != 1:
            raise ValueError(f"{self.key} is compared with one value; got {', '.join(values) or 'none'}.")
        (value,), (least, largest) = values.values(), self.expected
        if not 0 < value < np.inf:
            return Outcome(NONE, self.otherwise, f"{least:g} to {largest:g} {self.unit}")
        measured = f"{value:.3g} {self.unit}"
        if least <= value <= largest:
            return Outcome(measured, self.because)
        return Outcome(measured, self.otherwise, f"{least:g} to {largest:g} {self.unit}")

    def fits(self, answer: str) -> bool:
        """Return True for a number above 0."""
        with suppress(ValueError):
            return 0 < float(answer) < np.inf
        return False

    def form(self, name: str) -> Wording:
        """Return the format and the unit of the measured value."""
        return Wording("measured", unit=f" {self.unit}")

    def agrees(self, predicted: str, measured: str) -> bool:
        """Return True if the prediction's ratio to the measured number makes it right."""
        return measured != NONE and _ratio(predicted, measured) <= RIGHT

    def judge(self, predicted: str, measured: str) -> str:
        """Return the verdict in one word: right, near, wrong, or open if nothing was measured."""
        if measured == NONE:
            return "open"
        ratio = _ratio(predicted, measured)
        return "right" if ratio <= RIGHT else "near" if ratio <= NEAR else "wrong"

    def score(self, predicted: str, measured: str) -> str:
        """Return the verdict in words. It depends on the larger of the two numbers divided by the smaller."""
        if measured == NONE:
            return "They cannot be compared."
        words = {"right": "They agree", "near": "They are near each other", "wrong": "They differ"}
        return f"{words[self.judge(predicted, measured)]}: a factor of {_ratio(predicted, measured):.3g}."


class Sentence(NamedTuple):
    """A sentence that a run completes. ``expect`` is a Python expression over the values, which the lesson assumes to
    be true; for a ``card``, the sentence also says whether it is: pass or fail.
    """

    key: str
    template: str
    expect: str = ""
    timed: bool = False
    card: bool = False
    kind: str = ""


By = str | tuple[str, ...]
"""The measurements that decide a claim: ``"say wait.5"`` is a sentence, ``"predict wait.1"`` a question, ``"check
wait.3"`` an exercise. A condition on the values may follow: ``"say wait.5: asp < 1.1"``.
"""


class Prompt(NamedTuple):
    """A task that is answered in two sentences, and an example of an answer for unattended runs. ``by`` decides the
    claims of the example; ``"table: row['mean'][0] > 2"`` is a condition on the numbers of the table's rows.
    """

    key: str
    task: str
    example: str
    by: By = ()
    kind: str = ""


class Item(NamedTuple):
    """A question of a quiz. ``explained`` maps each option to its explanation; the first option is right, as ``by``
    decides.
    """

    text: str
    explained: Mapping[str, str]
    by: By = ()

    @property
    def right(self) -> str:
        """The right option."""
        return next(iter(self.explained))


QUESTIONS: dict[str, Question | Estimate] = {}
SENTENCES: dict[str, Sentence] = {}
PROMPTS: dict[str, Prompt] = {}
QUIZZES: dict[str, tuple[Item, ...]] = {}
REMEMBERED: dict[str, Mapping[str, By]] = {}
"""Maps each lesson to what decides the lines of its section "Remember", by the first words of each line."""


def _kind_of(key: str, kind: str, timed: bool = False) -> str:
    """Return the kind; if none is given, that of what is timed is "time". ValueError for one that does not exist."""
    if kind and kind not in KINDS:
        raise ValueError(f"{key}: there is no kind {kind!r}. {suggestion(kind, KINDS)}")
    return kind or ("time" if timed else "")


def question(
    key: str,
    text: str,
    *choices: Option,
    otherwise: str,
    timed: bool = False,
    kind: str = "",
    shown: Mapping[str, str] | None = None,
) -> None:
    """Add a question with options, one of which is `Expected`; ``otherwise`` is shown if none comes true. ``kind`` is
    "comparison", "count", "time", "identity" or "single"; the values of a "comparison" must come from a
    `minips.lab.Best`. ``shown`` maps the name of a measured value to its words, format and unit: ``"time: {:.2f} s"``.
    """
    expected = [choice.text for choice in choices if isinstance(choice, Expected)]
    if len(expected) != 1:
        raise ValueError(f"{key}: expected one option that is Expected(…), got {len(expected)}.")
    kind = _kind_of(key, kind, timed)
    add("question", QUESTIONS, key, Question(key, text, choices, expected[0], otherwise, timed, kind, shown or {}))


def estimate(
    key: str,
    text: str,
    unit: str,
    expected: tuple[float, float],
    because: str,
    otherwise: str,
    timed: bool = False,
    kind: str = "",
) -> None:
    """Add a question that is answered with a number above 0 of this ``unit``. The lesson's text assumes a measured
    number between the two in ``expected``: ``because`` is the reason then, and ``otherwise`` for another number. A
    prediction is scored by its ratio to the measured number. ``timed`` is for seconds of this machine; ``kind`` is as
    for a `question`. ValueError if ``expected`` is not two numbers above 0, the smaller first.
    """
    kind = _kind_of(key, kind, timed)
    add("question", QUESTIONS, key, Estimate(key, text, unit, expected, because, otherwise, timed, kind))


def sentence(
    key: str, template: str, expect: str = "", timed: bool = False, card: bool = False, kind: str = ""
) -> None:
    """Add a sentence with the names of a run's values in braces. ``expect`` is a Python expression over the values,
    which the lesson's text assumes to be true. A ``card`` also says whether it is: pass or fail. ``timed`` is for
    seconds of this machine; ``kind`` is as for a `question`.
    """
    add("sentence", SENTENCES, key, Sentence(key, template, expect, timed, card, _kind_of(key, kind, timed)))


def prompt(key: str, task: str, example: str, by: By = (), kind: str = "") -> None:
    """Add a task that is answered in two sentences, and an ``example`` of an answer. ``by`` names the keys that decide
    what the example claims. The table of a prompt whose ``kind`` is "comparison" must be a `minips.lab.Best`.
    """
    add("prompt", PROMPTS, key, Prompt(key, task, example, by, _kind_of(key, kind)))


def remember(lesson: str, lines: Mapping[str, By]) -> None:
    """Add what decides each line of a lesson's section "Remember". A line is named by its first words."""
    add("list to remember", REMEMBERED, lesson, lines)


def quiz(lesson: str, *items: Item) -> None:
    """Add the five questions at the end of a lesson, such as "mine:votes". ValueError for another number of them."""
    if len(items) != 5:
        raise ValueError(f"{lesson}: a quiz has five questions, got {len(items)}.")
    add("quiz", QUIZZES, lesson, items)


timed_question, timed_estimate = partial(question, timed=True), partial(estimate, timed=True)
timed_sentence, card = partial(sentence, timed=True), partial(sentence, card=True)
"""These add timed questions and sentences; `card` adds a sentence that says pass or fail."""


def find(what: str, known: Mapping[str, T], key: Any) -> T:
    """Return the value under this key. The ValueError lists the known keys and suggests the closest; if ``key`` names a
    course, it considers only that course's keys. If another course has the key, the ValueError suggests that.
    """
    full = full_key(key)
    prefix = course_of(full).prefix  # importing the courses fills the tables
    if full not in known and is_retired(CALLS.get(what, what), full):
        lesson = course_of(full).paths()[lesson_of(full)].name
        raise Retired(
            f"{full} belongs to an earlier edition of this lesson, which is now {lesson}. To get it, rename this copy "
            "if it has the same name, and run: minips lab"
        )
    if full not in known:
        alike = [one for one in known if one.startswith(prefix)]
        if there := next((one for one in known if one.endswith(f":{full}")), None):
            raise ValueError(f"There is no {what} {key!r}. Did you mean {there}?")
        raise ValueError(f"There is no {what} {key!r}. {suggestion(full, alike)}")
    return known[full]


def tells_if_retired(call: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function that a lesson's cells call: for a retired key it shows one line, so that an old copy runs on."""

    @wraps(call)
    def wrapped(*given: Any, **named: Any) -> Any:
        try:
            return call(*given, **named)
        except Retired as retired:
            show_line(str(retired))
            return Unasked()

    return wrapped


class Unasked(tuple[()]):
    """The result of a call with a retired key: no prediction to wait for, nothing to compare, no verdict."""

    def require(self) -> None:
        """Wait for nothing."""

    def compare(self, **values: Any) -> None:
        """Show nothing."""

    def _ipython_display_(self) -> None:
        """Show nothing."""


def full_key(key: Any) -> str:
    """Return the key with the lesson's name in place of its number in an earlier edition, if it has one.

    >>> full_key("wait.1"), full_key("14.1"), full_key("8.2")
    ('wait.1', 'wait.1', 'bits.2')
    """
    lesson, dot, number = str(key).partition(".")
    word = numbers().get(int(lesson), lesson) if lesson.isdecimal() else lesson
    return f"{word}{dot}{number}"


def settled(asked: Question | Estimate, **values: Any) -> Outcome:
    """Return a run's outcome. Disagreement if an unattended run of an untimed question has another than expected.
    TypeError as `check_compared`.
    """
    check_compared(asked, values)
    outcome = asked.outcome(**values)
    if outcome.expected is not None and not asked.timed and state.autoplay():
        raise Disagreement(
            f"{asked.key}: expected {outcome.expected!r}, got {outcome.measured!r} of {_in_words(values)}."
        )
    return outcome


def completed(key: str, **values: Any) -> tuple[str, bool]:
    """Return a sentence with its values, and whether its ``expect`` is true. Raises errors as `settled` does, and
    TypeError if a value is missing.
    """
    said = find("sentence", SENTENCES, key)
    check_compared(said, values)
    if missing := [name for name in _names_in(said) if name not in values]:
        got = f"only {join_names([*values])}" if values else "no value"
        raise TypeError(f"The sentence {said.key} needs {join_names(missing)}, and lab.say got {got}.")
    holds = not said.expect or bool(eval(said.expect, {"__builtins__": BUILTINS}, values))
    if not holds and not said.timed and state.autoplay():
        raise Disagreement(f"{said.key}: expected {said.expect}; got {_in_words(values)}.")
    text = said.template.format(**values)
    if said.card:
        text += " Pass." if holds else " Fail."
    return text if holds else f"{text} Expected: {said.expect}. Here it came out otherwise.", holds


def _check_arguments(key: str, choice: Option, values: Collection[str]) -> None:
    """TypeError if a rule cannot be called with values of these names. Some built-in functions do not tell."""
    try:
        takes = inspect.signature(choice.rule)
    except ValueError:
        return
    try:
        takes.bind(**dict.fromkeys(values))
    except TypeError:
        names, got = (join_names([*some]) if some else "nothing" for some in (takes.parameters, values))
        raise TypeError(f"{key}: the rule of {choice.text!r} takes {names}, and compare got {got}.") from None


def _names_in(said: Sentence) -> list[str]:
    """Return the names of the values that a sentence and its ``expect`` need, each once."""
    fields = [re.split(r"[.\[]", name)[0] for _, name, *_ in Formatter().parse(said.template) if name]
    tree = ast.parse(said.expect or "True", mode="eval")
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    known = {*BUILTINS, *(node.id for node in names if isinstance(node.ctx, ast.Store))}
    return [*dict.fromkeys([*fields, *(node.id for node in names if node.id not in known)])]


def check_compared(asked: Question | Estimate | Sentence, values: Mapping[str, Any]) -> None:
    """TypeError if a comparison gets a value that is not a number from a `minips.lab.Best`, or a text."""
    loose = [name for name, value in values.items() if not isinstance(value, Figure | str)]
    if asked.kind == "comparison" and loose:
        raise TypeError(
            f"{asked.key} compares schemes that train, so each of its values must come from lab.best_of, such as "
            f"best.difference(…).mean. These do not: {', '.join(loose)}."
        )


class Told:
    """A line of text. In a notebook it is HTML, which breaks between words only, and which screen readers read out."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return status(self.text)


def show_line(text: str) -> None:
    """Show a line of text."""
    from IPython.display import display  # a test of an exercise needs no notebook

    display(Told(text))  # type: ignore[no-untyped-call]


def _round_value(value: float) -> float:
    """Return a number with three digits."""
    return float(f"{value:.3g}")


def _ratio(predicted: str, measured: str) -> float:
    """Return the larger divided by the smaller of two texts' first words; infinity if one is not a number."""
    try:
        one, other = (float(text.split()[0]) for text in (predicted, measured))
        return max(one / other, other / one)
    except (ValueError, IndexError, ZeroDivisionError):
        return float("inf")


def _has_nan(values: Mapping[str, Any]) -> bool:
    return any(bool(np.isnan(x).any()) for x in map(np.asarray, values.values()) if x.dtype.kind in "fc")


def _in_words(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {value!r}" for name, value in values.items())
