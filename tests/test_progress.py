"""What is kept of a learner, in a folder that belongs to the test."""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest

from minips import lab
from minips.lab.course import QUESTIONS, courses, exercises, predictions, state
from minips.lab.course.questions import Estimate, Option, Question


@pytest.fixture(autouse=True)
def one_that_takes_yes(somebody_is_there: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """An exercise whose answer is a word, and a question that a number decides."""
    asked = exercises.Exercise("train.1", "say yes", ("yes",), lambda thing, rng: one(thing))
    monkeypatch.setitem(exercises.EXERCISES, "train.1", asked)
    monkeypatch.delitem(exercises.EXERCISES, "train.4")
    options = (Option("much", lambda x: x > 1, "It is."), Option("little", lambda x: x <= 1, "It is not."))
    which = Question("train.1", "How much?", options, "much", "No number.", timed=False)
    monkeypatch.setitem(QUESTIONS, "train.1", which)


def one(thing: object) -> str:
    exercises.refuse_if(thing != "yes", f"got {thing}")
    return "It is."


def row(number: str) -> tuple[str, str]:
    table = lab.progress()
    assert "exercises" in repr(table)
    assert "<table>" in table._repr_html_()
    return next(words[1:] for words in table.table() if words[0].startswith(number))


def test_nothing_is_done_at_first() -> None:
    assert row("00") == ("0 of 2", "0 of 2")


def test_an_exercise_counts_once_it_is_passed() -> None:
    assert not lab.check("train.1", "no")
    assert row("00")[0] == "0 of 2"
    for key in ("train.1", "00.1", "0.1"):
        assert lab.check(key, "yes")
    assert row("00")[0] == "1 of 2 (train.1)"
    assert len(state.facts()) == 1


def guessed(option: str) -> predictions.Guess:
    """A choice that is not yet said."""
    guess = lab.predict("train.1")
    guess.choice.value = option
    return guess


def test_a_prediction_counts_and_outlives_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    guess = guessed("much")
    assert row("00")[1] == "0 of 2"
    guess.commit()
    assert row("00")[1] == "1 of 2, 0 came true"
    guess.compare(x=2)
    assert row("00")[1] == "1 of 2, 1 came true"
    monkeypatch.setattr(predictions, "_kept", {})
    again = lab.predict("train.1")
    assert again.value == again.choice.value == "much"


def test_what_was_noted_of_an_earlier_edition_is_set_aside_and_said() -> None:
    file = state.state_file()
    file.parent.mkdir(parents=True)
    answers = [
        {"exercise": "00.1"},
        {"question": "How?", "predicted": "so"},
        {"notebook": "00_gone.ipynb", "exercise": "00.1"},
        {"notebook": "00_gone.ipynb", "exercise": "train.1"},
        {"notebook": "00_train_in_a_minute.ipynb", "exercise": "01.1"},
    ]
    file.write_text("".join(json.dumps(answer) + "\n" for answer in answers))
    assert row("00") == ("0 of 2", "0 of 2")
    assert "5 notes belong to no lesson of a course that is installed" in repr(lab.progress())
    assert "5 notes belong to no lesson of a course that is installed" in lab.progress()._repr_html_()


NOTES = """
{"notebook": "00_train_in_a_minute.ipynb", "exercise": "00.1"}
{"notebook": "00_train_in_a_minute.ipynb", "question": "00.1", "predicted": "much"}
{"notebook": "14_wait_or_dont.ipynb", "exercise": "14.2"}
{"notebook": "14_wait_or_dont.ipynb", "answer": "14.2", "task": "Why?", "table": "x", "text": "It waits."}
{"notebook": "14_wait_or_dont.ipynb", "quiz": "14", "right": "4 of 5"}
"""
"""As the second edition wrote them."""


@pytest.mark.soak
def test_what_was_noted_under_numbers_is_read_as_notes_on_the_lessons_that_they_have_become() -> None:
    state.state_file().parent.mkdir(parents=True)
    state.state_file().write_text(NOTES.lstrip())
    assert (row("00"), row("16")[0]) == (("1 of 2 (train.1)", "1 of 2, 0 came true"), "1 of 2 (wait.2)")
    assert lab.progress().set_aside == 0
    assert lab.predict("train.1").value == "much"
    assert state.noted("quiz") == {"wait": {"quiz": "wait", "right": "4 of 5"}}
    page = lab.report(state.state_file().parent).path.read_text()
    assert "Exercises: wait.2 done, of 2." in page
    assert "It waits." in page
    assert lab.check("00.1", "yes")
    assert state.state_file().read_text() == NOTES.lstrip()  # it was noted before
    lab.predict("train.1").compare(x=2)
    assert row("00") == ("1 of 2 (train.1)", "1 of 2, 1 came true")


@pytest.mark.soak
def test_a_lesson_that_is_renumbered_keeps_its_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both under its word and under its number in the second edition, which another lesson has now."""
    course = courses.chosen()
    last, first = course.lessons[-1], course.lessons[0]
    for place, word in enumerate((last, *course.lessons[:-1])):
        shutil.copy(course.paths()[word], tmp_path / f"{place:02}_{word}.ipynb")
    renumbered = dataclasses.replace(course, notebooks=tmp_path, lessons=(last, *course.lessons[:-1]))
    monkeypatch.setattr(courses, "installed", lambda: {"minips_course": renumbered})
    state.state_file().parent.mkdir(parents=True)
    state.state_file().write_text(NOTES.lstrip())
    lab.check("train.1", "yes")
    assert [*courses.chosen().paths()][:2] == [last, first]
    wait = f"{[*courses.chosen().paths()].index('wait'):02}"
    assert (row("00")[0], row("01")[0], row(wait)[0]) == ("0 of 2", "1 of 2 (train.1)", "1 of 2 (wait.2)")


def test_a_question_that_asks_for_a_number_now_reads_notes_of_when_it_had_options(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    number = Estimate("train.1", "How much?", "ms", (1.0, 2.0), "So.", "Not so.", timed=True)
    monkeypatch.setitem(QUESTIONS, "train.1", number)
    for measured, right in (("much", 0), ("12 ms", 1), ("0 ms", 0)):
        state.note("question", "train.1", predicted="12.5", measured=measured)
        assert row("00")[1] == f"1 of 2, {right} came true"
    state.note("question", "train.1", predicted="little", measured="much")
    assert row("00")[1] == "1 of 2, 0 came true"


def test_a_note_of_another_edition_does_not_hide_one_of_this() -> None:
    lab.check("train.1", "yes")
    with state.state_file().open("a") as file:
        file.write(json.dumps({"notebook": "00_gone.ipynb", "exercise": "00.1"}) + "\n")
        file.write(json.dumps({"notebook": "00_gone.ipynb", "exercise": ["00.1"]}) + "\n")
    assert row("00")[0] == "1 of 2 (train.1)"


def test_nothing_is_noted_where_nobody_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINIPS_AUTOPLAY", "1")
    assert lab.check("train.1", "yes")
    lab.predict("train.1").compare(x=2)
    assert not state.state_file().exists()


def test_a_folder_that_cannot_be_written_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    verdict = lab.check("train.1", "yes")
    assert verdict
    assert "could not be noted" in repr(verdict)
    assert row("00") == ("0 of 2", "0 of 2")
    guess = guessed("little")
    guess.commit()
    assert "could not be noted" in guess.note.value
    guess.require()


def test_what_cannot_be_read_is_left_out() -> None:
    assert lab.check("train.1", "yes")
    with state.state_file().open("ab") as file:
        file.write(b'nonsense\n[]\n\xff\xfe\n{"notebook": "00_train_in_a_minute.ipynb", "exercise": "00.3"}\n')
    assert row("00")[0] == "2 of 2 (train.3, train.1)"


def test_reset_forgets() -> None:
    lab.check("train.1", "yes")
    state.reset()
    state.reset()
    assert row("00")[0] == "0 of 2"


def test_reset_keeps_what_it_forgets_each_time() -> None:
    kept = []
    for _ in range(3):
        assert lab.check("train.1", "yes")
        kept.append(state.reset())
    assert state.reset() is None
    assert [path and path.name for path in kept] == ["progress-1.jsonl", "progress-2.jsonl", "progress-3.jsonl"]
    assert all(path and path.parent == state.state_file().parent and "train.1" in path.read_text() for path in kept)


def test_reset_leaves_a_link_to_the_notes_and_what_holds_none(tmp_path: Path) -> None:
    state.state_file().parent.mkdir(parents=True, exist_ok=True)
    state.state_file().symlink_to(tmp_path / "notes.jsonl")
    assert lab.check("train.1", "yes")
    assert state.reset() == tmp_path / "notes-1.jsonl"
    assert lab.check("train.1", "yes")
    assert state.state_file().is_symlink()
    assert (tmp_path / "notes.jsonl").read_text() == (tmp_path / "notes-1.jsonl").read_text()
    state.state_file().unlink()
    state.state_file().symlink_to("/dev/null")
    assert lab.check("train.1", "yes")
    assert (state.reset(), state.facts()) == (None, [])
    assert state.state_file().is_symlink()


@pytest.mark.parametrize(
    ("platform", "place"), [("win32", "AppData"), ("darwin", "Application Support"), ("linux", ".local")]
)
def test_where_no_folder_is_named_it_is_the_platforms(
    platform: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("XDG_STATE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.platform", platform)
    assert place in str(state.state_file())


def test_reset_of_one_course_keeps_the_notes_of_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = courses.Course("mine", "Mine", tmp_path, ("votes",))
    (tmp_path / "00_votes.ipynb").write_text('{"cells": [{"cell_type": "markdown", "source": "\\n# Votes"}]}')
    both = {"minips_course": courses.chosen(), "mine_course": other}
    monkeypatch.setattr(courses, "installed", lambda: both)
    assert lab.check("train.1", "yes")
    for note in ("mine:votes.1", "mine:votes.2", "other:votes.1"):
        assert state.note("answer", note, text="Yes.") == ""
    table = [words[0] for words in lab.progress().table()]
    assert (table[1], table[-2:]) == (courses.chosen().title, ["Mine", "00 Votes"])
    assert "1 note belongs to no lesson of a course that is installed" in repr(lab.progress())
    page = lab.report(tmp_path).path.read_text()
    assert page.index("taken apart</h2>") < page.index("<h2>Mine</h2>\n<h3>00 Votes</h3>")
    assert state.reset(other)
    assert sorted(state.noted("exercise")) == ["train.1"]
    assert state.noted("answer") == {}
    assert [words for words in lab.progress().table() if "Votes" in words[0]] == []
    assert state.set_aside() == 1
