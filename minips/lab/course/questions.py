"""Questions and sentences of the lessons, by key: ``question("trust.1", …)`` in a course's package is
``lab.predict("trust.1")`` in the notebook, ``sentence("trust.3", …)`` is ``lab.say("trust.3", …)``, and so on.

A notebook hands measured values over, by name; what they mean is decided here. An option has a rule over the values,
by which the run says which one came true, and a reason of its own. The `Expected` one is that from which the lesson's
text goes on. Where a run on somebody's machine comes out otherwise, the lesson shows both and goes on; an unattended
run ends with a `Disagreement`, unless the question is timed: seconds are the machine's affair.
"""

import html
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np

from minips import seeds
from minips.lab.course import state
from minips.lab.course.courses import add, course_of, numbers
from minips.words import suggestion

NONE = "none of these"
"""The outcome where no rule holds, or where a value is NaN."""
RIGHT, NEAR = 1.25, 2.0
"""A number that was predicted is right, or near, up to this ratio of the larger to the smaller."""

T = TypeVar("T")


class Disagreement(AssertionError):  # noqa: N818, it is what came of a run
    """An unattended run came out otherwise than the lesson expects."""


class Outcome(NamedTuple):
    """The answer of a run to a question. ``expected`` is the outcome from which the text goes on, if it is another."""

    measured: str
    because: str
    expected: str | None = None


class Option(NamedTuple):
    """One that can be predicted, the rule over the measured values by which it comes true, and why it would."""

    text: str
    rule: Callable[..., Any]
    because: str


class Expected(Option):
    """The option from which the lesson's text goes on."""


@dataclass(frozen=True)
class Question:
    """One with options. ``otherwise`` is said where none comes true."""

    key: str
    text: str
    choices: tuple[Option, ...]
    expected: str
    otherwise: str
    timed: bool = False

    def __post_init__(self) -> None:
        texts = [choice.text for choice in self.choices]
        if len(set(texts)) < max(2, len(texts)) or self.expected not in texts:
            raise ValueError(f"{self.key}: expected two different options or more, {self.expected!r} among them.")

    @property
    def options(self) -> tuple[str, ...]:
        """The texts of the options, in an order that follows from the question alone."""
        return tuple(seeds.options(self.text).permutation([choice.text for choice in self.choices]).tolist())

    def outcome(self, **values: Any) -> Outcome:
        """The option that came true. ValueError where two did, unless somebody is there, who sees the first."""
        true = [] if _has_nan(values) else [choice for choice in self.choices if choice.rule(**values)]
        if len(true) > 1 and state.autoplay():
            raise ValueError(f"{self.key}: {', '.join(repr(one.text) for one in true)} are all true of {values}.")
        measured, because = (true[0].text, true[0].because) if true else (NONE, self.otherwise)
        return Outcome(measured, because, None if measured == self.expected else self.expected)

    def agrees(self, predicted: str, measured: str) -> bool:
        """True where the prediction came true."""
        return predicted == measured

    def score(self, predicted: str, measured: str) -> str:
        """The verdict on a prediction, in words."""
        return "They agree." if self.agrees(predicted, measured) else "They differ."


@dataclass(frozen=True)
class Estimate:
    """One that is answered with a number and scored by its ratio to the measured one. The text goes on from a
    measurement within ``expected``, the least and the largest.
    """

    key: str
    text: str
    unit: str
    expected: tuple[float, float]
    because: str
    otherwise: str
    timed: bool = False

    def outcome(self, **values: float) -> Outcome:
        """The one value that was measured. ValueError where there is not one."""
        if len(values) != 1:
            raise ValueError(f"{self.key} is compared with one value; got {', '.join(values) or 'none'}.")
        (value,), (least, largest) = values.values(), self.expected
        if not 0 < value < np.inf:
            return Outcome(NONE, self.otherwise, f"{least:g} to {largest:g} {self.unit}")
        measured = f"{value:.3g} {self.unit}"
        if least <= value <= largest:
            return Outcome(measured, self.because)
        return Outcome(measured, self.otherwise, f"{least:g} to {largest:g} {self.unit}")

    def agrees(self, predicted: str, measured: str) -> bool:
        """True where the prediction is right by its ratio."""
        return measured != NONE and _ratio(predicted, measured) <= RIGHT

    def score(self, predicted: str, measured: str) -> str:
        """The verdict on a prediction, in words, by the ratio: the larger over the smaller of the two."""
        if measured == NONE:
            return "They cannot be compared."
        ratio = _ratio(predicted, measured)
        verdict = "They agree" if ratio <= RIGHT else "They are near each other" if ratio <= NEAR else "They differ"
        return f"{verdict}: a factor of {ratio:.3g}."


class Sentence(NamedTuple):
    """One that a run completes. ``expect`` is a Python expression over the values, on which the lesson goes on to
    build; of a ``card`` the verdict is said as well: pass or fail.
    """

    key: str
    template: str
    expect: str = ""
    timed: bool = False
    card: bool = False


class Prompt(NamedTuple):
    """A task that is answered in two sentences, and an example of an answer for unattended runs."""

    key: str
    task: str
    example: str


class Item(NamedTuple):
    """A question of a quiz, and its options, each with an explanation; the first one is right."""

    text: str
    explained: Mapping[str, str]

    @property
    def right(self) -> str:
        """The right option."""
        return next(iter(self.explained))


QUESTIONS: dict[str, Question | Estimate] = {}
SENTENCES: dict[str, Sentence] = {}
PROMPTS: dict[str, Prompt] = {}
QUIZZES: dict[str, tuple[Item, ...]] = {}


def question(key: str, text: str, *choices: Option, otherwise: str, timed: bool = False) -> None:
    """Add a question with options, one of which is `Expected`; ``otherwise`` is said where none comes true."""
    expected = [choice.text for choice in choices if isinstance(choice, Expected)]
    if len(expected) != 1:
        raise ValueError(f"{key}: expected one option that is Expected(…), got {len(expected)}.")
    add("question", QUESTIONS, key, Question(key, text, choices, expected[0], otherwise, timed))


def estimate(
    key: str, text: str, unit: str, expected: tuple[float, float], because: str, otherwise: str, timed: bool = False
) -> None:
    """Add a question that is answered with a number, see `Estimate`."""
    add("question", QUESTIONS, key, Estimate(key, text, unit, expected, because, otherwise, timed))


def sentence(key: str, template: str, expect: str = "", timed: bool = False, card: bool = False) -> None:
    """Add a sentence that a run completes, see `Sentence`."""
    add("sentence", SENTENCES, key, Sentence(key, template, expect, timed, card))


def prompt(key: str, task: str, example: str) -> None:
    """Add a task that is answered in two sentences, and an example of an answer for unattended runs."""
    add("prompt", PROMPTS, key, Prompt(key, task, example))


def quiz(lesson: str, *items: Item) -> None:
    """Add the five questions at the end of a lesson."""
    if len(items) != 5:
        raise ValueError(f"{lesson}: expected five questions.")
    add("quiz", QUIZZES, lesson, items)


timed_question, timed_estimate = partial(question, timed=True), partial(estimate, timed=True)
timed_sentence, card = partial(sentence, timed=True), partial(sentence, card=True)
"""Add one that is timed, and a sentence that says pass or fail."""


def find(what: str, known: Mapping[str, T], key: Any) -> T:
    """Return the value under this key. The ValueError lists the known keys and suggests the closest; if ``key`` names a
    course, it considers only that course's keys.
    """
    full = full_key(key)
    prefix = course_of(full).prefix  # the courses, once they are asked for, fill the tables
    if full not in known:
        alike = [one for one in known if one.startswith(prefix)]
        raise ValueError(f"There is no {what} {key!r}. {suggestion(full, alike)}")
    return known[full]


def full_key(key: Any) -> str:
    """The key with the lesson's word, where it has the lesson's number in an earlier edition.

    >>> full_key("wait.1"), full_key("14.1"), full_key("8.2")
    ('wait.1', 'wait.1', 'bits.2')
    """
    lesson, dot, number = str(key).partition(".")
    word = numbers().get(int(lesson), lesson) if lesson.isdecimal() else lesson
    return f"{word}{dot}{number}"


def settled(asked: Question | Estimate, **values: Any) -> Outcome:
    """The outcome of a run. Disagreement where an unattended one comes out otherwise than expected and is not timed."""
    outcome = asked.outcome(**values)
    if outcome.expected is not None and not asked.timed and state.autoplay():
        raise Disagreement(f"{asked.key}: expected {outcome.expected!r}, got {outcome.measured!r} of {_told(values)}.")
    return outcome


def completed(key: str, **values: Any) -> tuple[str, bool]:
    """A sentence with the values in it, and whether what it expects holds; Disagreement as in `settled`."""
    said = find("sentence", SENTENCES, key)
    names = {"abs": abs, "all": all, "any": any, "len": len, "min": min, "max": max, "sum": sum}
    holds = not said.expect or bool(eval(said.expect, {"__builtins__": names}, values))
    if not holds and not said.timed and state.autoplay():
        raise Disagreement(f"{said.key}: expected {said.expect}; got {_told(values)}.")
    text = said.template.format(**values)
    if said.card:
        text += " Pass." if holds else " Fail."
    return text if holds else f"{text} Expected: {said.expect}. Here it came out otherwise.", holds


def as_html(text: str) -> str:
    """Text in HTML, its line ends kept."""
    return html.escape(text).replace("\n", "<br>")


def _ratio(predicted: str, measured: str) -> float:
    """The larger over the smaller of two numbers, each at the beginning of its text; infinite where one is none."""
    try:
        one, other = (float(text.split()[0]) for text in (predicted, measured))
        return max(one / other, other / one)
    except (ValueError, IndexError, ZeroDivisionError):
        return float("inf")


def _has_nan(values: Mapping[str, Any]) -> bool:
    return any(bool(np.isnan(x).any()) for x in map(np.asarray, values.values()) if x.dtype.kind in "fc")


def _told(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {value!r}" for name, value in values.items())
