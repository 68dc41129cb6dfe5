"""Statistics of a class from the students' ``report.json``: predictions, quizzes and the length of answers.

The files are untrusted. One that cannot be read gives a sentence, never an error, and no text from a file is shown:
predictions are counted under the options of the questions that are installed here, and judged again. A question that is
not installed here is left out.
"""

import json
import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from textwrap import shorten
from typing import Any, TypeVar

import numpy as np

from minips.lab.course.courses import installed
from minips.lab.course.portfolio import FORMAT, Score
from minips.lab.course.questions import PROMPTS, QUESTIONS, QUIZZES, Estimate, Question
from minips.results.tables import align
from minips.words import printable

MOST_BYTES = 4_000_000
"""The size of the largest file that is read; a report of the whole course is below 1 MB."""
MOST_LETTERS = 1000
"""The letters of a prediction that are read; the digits of a longer number would take long."""
TYPES = {list: "a list", dict: "an object", str: "a text", int: "a whole number"}

T = TypeVar("T")


@dataclass(frozen=True)
class Quartiles:
    """The median of numbers, and the lower and the upper quartile."""

    lower: float
    median: float
    upper: float

    @classmethod
    def of(cls, values: list[float]) -> "Quartiles":
        """Return those of at least one number."""
        return cls(*np.quantile(values, (0.25, 0.5, 0.75)).tolist())

    def __str__(self) -> str:
        return f"median {self.median:.3g}, quartiles {self.lower:.3g} and {self.upper:.3g}"


@dataclass(frozen=True)
class AskedOfClass:
    """A question: how many ``students`` predicted, how many of them ``compared`` that with a measurement, and how many
    of these came true. ``share`` is the part that came true. A question with options counts the predictions of each,
    and how often it was measured; a number has quartiles and a unit.
    """

    text: str
    students: int
    compared: int
    came_true: int
    near: int
    options: dict[str, int] = field(default_factory=dict)
    measured: dict[str, int] = field(default_factory=dict)
    number: Quartiles | None = None
    unit: str = ""

    @property
    def share(self) -> float | None:
        """The part of the compared predictions that came true; None if none was compared."""
        return self.came_true / self.compared if self.compared else None


@dataclass(frozen=True)
class QuizOfClass:
    """A quiz: how many students finished it, and the mean number of right first answers."""

    students: int
    mean: float
    of: int


@dataclass(frozen=True)
class AnswerOfClass:
    """An answer in words: how many students gave it, and the quartiles of their numbers of words."""

    task: str
    students: int
    words: Quartiles


@dataclass(frozen=True)
class ClassReport:
    """Statistics by the key of each question, quiz and answer. ``unread`` maps the path of a file that could not be
    read to the reason.
    """

    students: int
    """The number of files that could be read."""
    unread: dict[str, str]
    questions: dict[str, AskedOfClass]
    quizzes: dict[str, QuizOfClass]
    answers: dict[str, AnswerOfClass]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        plain = asdict(self)
        for key, asked in self.questions.items():
            plain["questions"][key]["share"] = asked.share
        return plain

    def __repr__(self) -> str:
        count = self.students
        lines = [f"{'1 report was' if count == 1 else f'{count} reports were'} read."]
        lines += [f"{path} is left out: {why}" for path, why in self.unread.items()]
        rows = [*self._rows()]
        return "\n".join([*lines, *(line.rstrip() for line in align(rows, "<") if rows[1:])])

    def _rows(self) -> Iterator[tuple[str, str, str, str]]:
        yield "key", "task", "students", "result"
        for key, asked in self.questions.items():
            right = f"{asked.came_true} of {asked.compared} came true"
            near = f", {asked.near} near" if asked.near else ""
            share = "" if asked.share is None else f" ({asked.share:.0%}){near}"
            yield key, shorten(asked.text, 60, placeholder=" …"), f"{asked.students}", f"{right}{share}"
            for option, count in asked.options.items():
                measured = asked.measured.get(option, 0)
                told = f"measured by {measured}" if measured else ""
                yield "", f"  {shorten(option, 58, placeholder=' …')}", f"{count}", told
            if asked.number:
                yield "", f"  {asked.number} {asked.unit}".rstrip(), "", ""
        for key, quiz in self.quizzes.items():
            yield key, "quiz", f"{quiz.students}", f"mean {quiz.mean:.1f} of {quiz.of}"
        for key, answer in self.answers.items():
            yield key, shorten(answer.task, 60, placeholder=" …"), f"{answer.students}", f"words: {answer.words}"


class Unreadable(Exception):  # noqa: N818, its text is a part of the result
    """Raised for a file that is no report; its text is a sentence."""


@dataclass
class _Student:
    """The part of a student's report that is counted, by key. A later entry replaces an earlier one."""

    predictions: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Maps a question to the predicted and the measured text."""
    quizzes: dict[str, Score] = field(default_factory=dict)
    answers: dict[str, int] = field(default_factory=dict)
    """Maps an answer to its number of words."""


def class_report(paths: Iterable[str | os.PathLike[str]]) -> ClassReport:
    """Return the statistics of a class from the files ``report.json`` of its students, which `report` has written. A
    file that cannot be read is named with the reason.
    """
    installed()  # fills the tables of questions
    students, unread = [], {}
    for path in map(Path, paths):
        try:
            students.append(_student(_read(path)))
        except Unreadable as error:
            unread[printable(str(path))] = str(error)
    questions = {
        key: _asked(asked, _of(key, [one.predictions for one in students])) for key, asked in QUESTIONS.items()
    }
    scores = {key: _of(key, [one.quizzes for one in students]) for key in QUIZZES}
    words = {key: _of(key, [one.answers for one in students]) for key in PROMPTS}
    return ClassReport(
        len(students),
        unread,
        {key: asked for key, asked in questions.items() if asked.students},
        {
            key: QuizOfClass(len(found), sum(one.right for one in found) / len(found), len(QUIZZES[key]))
            for key, found in scores.items()
            if found
        },
        {
            key: AnswerOfClass(PROMPTS[key].task, len(found), Quartiles.of([float(count) for count in found]))
            for key, found in words.items()
            if found
        },
    )


def _of(key: str, students: list[dict[str, T]]) -> list[T]:
    return [one[key] for one in students if key in one]


def _asked(asked: Question | Estimate, given: list[tuple[str, str]]) -> AskedOfClass:
    """Count the pairs of predicted and measured that fit the question."""
    fitting = [(predicted, measured) for predicted, measured in given if asked.fits(predicted)]
    verdicts = Counter(asked.judge(*pair) for pair in fitting if pair[1])
    right, near = verdicts["right"], verdicts["near"]
    counts = len(fitting), right + near + verdicts["wrong"], right, near
    if isinstance(asked, Estimate):
        number = Quartiles.of([float(predicted) for predicted, _ in fitting]) if fitting else None
        return AskedOfClass(asked.text, *counts, number=number, unit=asked.unit)
    guesses, outcomes = (Counter(texts) for texts in zip(*fitting, strict=True)) if fitting else (Counter(), Counter())
    options = [choice.text for choice in asked.choices]
    return AskedOfClass(
        asked.text, *counts, {text: guesses[text] for text in options}, {text: outcomes[text] for text in options}
    )


def _read(path: Path) -> Any:
    """Return the JSON in a file. Unreadable if it is no plain file, too large, or not JSON."""
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)  # a pipe must not wait
    try:
        with open(path, "rb", opener=lambda name, _: os.open(name, flags | getattr(os, "O_BINARY", 0))) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise Unreadable("It is not a plain file.")
            text = file.read(MOST_BYTES + 1)
    except (OSError, ValueError):
        link = "It is a link, and links are not followed."
        raise Unreadable(link if path.is_symlink() else "There is no file that can be read.") from None
    if len(text) > MOST_BYTES:
        raise Unreadable(f"It is larger than {MOST_BYTES:,} bytes, the most that a report has.")
    with suppress(ValueError, RecursionError):
        return json.loads(text, parse_constant=_refuse_constant)
    raise Unreadable("It is not JSON. Ask the student to run lab.report again.")


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


def _student(report: Any) -> _Student:
    """Return the parts of a report that are counted. Unreadable unless it is as `lab.report` writes it."""
    if (version := _take(report, "format", int)) != FORMAT:
        what = "newer" if version > FORMAT else "unknown"
        raise Unreadable(
            f"Its format is {what}: this minips reads the format {FORMAT}. Compare the versions of minips."
        )
    student = _Student()
    for course in _take(report, "courses", list):
        for lesson in _take(course, "lessons", list):
            for one in _take(lesson, "predictions", list):
                predicted, measured = (_take(one, name, str)[:MOST_LETTERS] for name in ("predicted", "measured"))
                student.predictions[_take(one, "key", str)] = predicted, measured
            for one in _take(lesson, "answers", list):
                count = len(_take(one, "text", str).split())
                if count:
                    student.answers[_take(one, "key", str)] = count
            if isinstance(lesson, dict) and lesson.get("quiz") is not None:
                quiz, word = _take(lesson, "quiz", dict), _take(lesson, "word", str)
                score = Score(_take(quiz, "right", int), _take(quiz, "of", int))
                if word in QUIZZES and 0 <= score.right <= score.of == len(QUIZZES[word]):
                    student.quizzes[word] = score
    return student


def _take(thing: Any, name: str, kind: type[T]) -> T:
    """Return a field of a JSON object. Unreadable unless it is there and of this type."""
    value = thing.get(name) if isinstance(thing, dict) else None
    if not isinstance(value, kind):
        raise Unreadable(f"It is not as lab.report writes it: a field {name!r} is not {TYPES[kind]}.")
    return value
