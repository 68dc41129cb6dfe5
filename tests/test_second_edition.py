"""A learner's copy of the second edition: a cell with a key that today's lesson no longer has shows one line."""

from importlib import import_module
from typing import Any

import pytest

import minips_course
from minips import lab
from minips.lab.course import courses
from minips.lab.course.exercises import EXERCISES, exercise
from minips.lab.course.questions import CALLS, PROMPTS, QUESTIONS, SENTENCES
from minips_course import course

TABLES = dict(zip(CALLS.values(), (QUESTIONS, SENTENCES, PROMPTS, EXERCISES), strict=True))
LESSONS = {word: import_module(f"minips_course.{word}.questions") for word in course.lessons}
RETIRED = {
    (call, f"{word}.{number}")
    for word, questions in LESSONS.items()
    for call, numbers in getattr(questions, "RETIRED", {}).items()
    for number in numbers
}
"""The calls and keys of the second edition that today's lessons have no more."""


def test_what_is_retired_is_not_asked_today() -> None:
    courses.installed()
    assert {call for call, _ in RETIRED} == {*TABLES}
    assert not [(call, key) for call, key in RETIRED if key in TABLES[call]]
    assert all(courses.is_retired(call, key) for call, key in RETIRED)


@pytest.fixture
def retired(monkeypatch: pytest.MonkeyPatch) -> str:
    """A key of lesson 16 that was asked in an earlier edition."""
    courses.installed()
    monkeypatch.setattr(LESSONS["wait"], "RETIRED", dict.fromkeys(TABLES, (99,)), raising=False)
    return "wait.99"


LINE = (
    "wait.99 belongs to an earlier edition of this lesson, which is now 16_wait_or_dont.ipynb. To get it, rename this "
    "copy if it has the same name, and run: minips lab\n"
)


def test_an_old_copy_runs_on_and_says_where_the_lesson_is(retired: str, capsys: pytest.CaptureFixture[str]) -> None:
    for key in (retired, retired.replace("wait", "14")):
        guess = lab.predict(key)
        guess.require()
        assert guess.compare(share=1) is None
        verdict: Any = lab.check(key, len)
        assert not verdict
        lab.say(key, share=1)
        lab.answer(key, "a table")
        lab.hint(key)
        assert capsys.readouterr().out == 5 * LINE


def test_a_retired_exercise_is_not_graded(retired: str) -> None:
    with pytest.raises(ValueError, match="belongs to an earlier edition of this lesson, which is now 16_wait"):
        exercise(retired)


def test_what_an_old_copy_draws_with_shows_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for part, names in minips_course.GONE.items():
        module = import_module(f"minips_course.{part}")
        for name in names:
            assert name not in vars(module)
            getattr(module, name)(1, two=2).three()
            today = course.paths()[part.partition(".")[0]].name
            line = (
                f"This cell belongs to an earlier edition of the lesson, which is now {today}. To get it: minips lab\n"
            )
            assert capsys.readouterr().out == 2 * line
        with pytest.raises(AttributeError, match="has no attribute 'never'"):
            _ = module.never


def test_what_never_was_is_still_an_error_with_a_suggestion() -> None:
    with pytest.raises(ValueError, match=r"There is no question 'wait\.98'"):
        lab.predict("wait.98")
