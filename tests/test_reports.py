"""A learner's report as data, the statistics of a class, and the rubric for its answers. The page's pictures are tested
in ``test_predictions.py``.
"""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minips
from minips import lab
from minips.lab.course import PROMPTS, QUESTIONS, QUIZZES, own, predictions, state
from minips.lab.course.best import Figure
from minips.lab.course.cells import Answer, Quiz
from minips.lab.course.class_report import MOST_BYTES, class_report
from minips.lab.course.courses import chosen, lesson_of
from minips.lab.course.lessons import lessons
from minips_course import rubric
from minips_course.bits import cases

pytestmark = pytest.mark.usefixtures("somebody_is_there")

LESSON = next(lesson for lesson in lessons() if lesson.word == "bits")
WORDS = "I choose signs. They send the fewest bytes."


def predict(key: str, answer: str) -> None:
    """Choose an answer, and make it final."""
    guess = lab.predict(key)
    guess.choice.value = answer
    guess.button.click()


def explain(key: str, text: str) -> None:
    """Keep an answer in words, beside a table."""
    box = Answer(PROMPTS[key], "scheme  sent (MB)\n  sign      0.143")
    box.text.value = text
    box.button.click()


def finish(word: str, wrong: int = 0) -> None:
    """Answer a quiz, so many of its questions wrongly."""
    quiz = Quiz(word, QUIZZES[word])
    for number, (item, choice) in enumerate(zip(quiz.items, quiz.choices, strict=True)):
        choice.value = next(option for option in choice.options if (option == item.right) == (number >= wrong))


def solve(key: str) -> None:
    """Have a right answer to an exercise checked."""
    names: dict[str, Any] = {"np": np, "Server": own.load(own.given(), "bits")}
    exec(next(iter(cases.RIGHT[key].values())), names)
    assert lab.check(key, names["Server" if key == "bits.2" else "busiest"])


def do_all_of_it() -> None:
    """Do each task of the lesson: one prediction is right, the other wrong."""
    predict("bits.1", "9.5")
    lab.predict("bits.1").compare(ratio=9.04)
    predict("bits.2", "fewer than half as many")
    lab.predict("bits.2").compare(times=Figure(0.73))
    for kind, key in LESSON.tasks:
        if kind == "answer":
            explain(key, WORDS)
        elif kind == "exercise":
            solve(key)
    finish("bits", wrong=1)


def do_half_of_it() -> None:
    """Predict one number without looking, and solve one exercise."""
    predict("bits.1", "30")
    solve("bits.2")


STUDENTS = {"Student A": do_all_of_it, "Student B": do_half_of_it, "": lambda: None}
"""Maps made-up students to their work; the last one hands in nothing, not even a name."""


@pytest.fixture(scope="module")
def handed_in(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folder of each student's report."""
    folders = {}
    for name, work in STUDENTS.items():
        folder = tmp_path_factory.mktemp(name or "nobody")
        with pytest.MonkeyPatch.context() as patch:
            patch.delenv("MINIPS_AUTOPLAY", raising=False)
            patch.setenv("XDG_STATE_HOME", str(folder / "state"))
            patch.setattr(predictions, "_kept", {})
            work()
            lab.report(folder, name=name)
        folders[name] = folder
    return folders


def data(folder: Path) -> Any:
    """A report's JSON, which has no number that is not finite."""
    return json.loads((folder / "report.json").read_text(encoding="utf-8"), parse_constant=pytest.fail)


class TestAStudentsReport:
    def test_a_complete_one_has_everything_and_lacks_nothing(self, handed_in: dict[str, Path]) -> None:
        report = data(handed_in["Student A"])
        assert (report["format"], report["name"], report["minips"]) == (1, "Student A", minips.__version__)
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", report["date"])
        [course] = report["courses"]
        [lesson] = course["lessons"]
        assert (course["name"], lesson["word"], lesson["number"]) == ("minips", "bits", "08")
        first, second = lesson["predictions"]
        assert first["question"] == QUESTIONS["bits.1"].text
        assert (first["predicted"], first["verdict"], first["values"]) == (
            "9.5",
            "right",
            {"ratio": {"value": 9.04, "half": 0.0}},
        )
        assert (second["verdict"], second["measured"]) == ("wrong", "no more: half as many to as many")
        [answer] = lesson["answers"]
        assert (answer["key"], answer["text"]) == ("bits.1", WORDS)
        assert (answer["task"], "0.143" in answer["evidence"]) == (PROMPTS["bits.1"].task, True)
        assert lesson["exercises"] == {"done": LESSON.exercises, "open": []}
        assert lesson["quiz"] == {"right": 4, "of": 5}
        assert (report["milestones"], report["incomplete"]) == ([], [])
        page = (handed_in["Student A"] / "report.html").read_text(encoding="utf-8")
        assert "<h2>Incomplete</h2>\n<p>Nothing is missing in the lessons that were begun.</p>" in page

    def test_one_that_is_not_complete_says_in_both_files_what_is_missing(self, handed_in: dict[str, Path]) -> None:
        report = data(handed_in["Student B"])
        for words in (
            "The prediction bits.1 was not compared with a measurement.",
            "The prediction bits.2 was not made.",
            "The answer bits.1 is empty.",
            "The exercise bits.3, which is homework, is not done.",
            "The quiz of bits is not finished.",
        ):
            assert words in report["incomplete"], words
        assert len(report["incomplete"]) == len(LESSON.tasks) - 1
        [lesson] = report["courses"][0]["lessons"]
        assert (lesson["predictions"][0]["verdict"], lesson["answers"], lesson["quiz"]) == ("", [], None)
        assert lesson["exercises"] == {"done": ["bits.2"], "open": ["bits.3"]}
        page = (handed_in["Student B"] / "report.html").read_text(encoding="utf-8")
        assert re.findall("<li>(.*?)</li>", page) == report["incomplete"]

    def test_an_empty_one_has_no_name_and_no_lesson(self, handed_in: dict[str, Path]) -> None:
        report = data(handed_in[""])
        assert (report["courses"], report["incomplete"]) == ([], ["The name is missing: lab.report(name=…) adds it."])

    def test_a_value_that_is_not_finite_and_half_a_letter_are_texts(self, tmp_path: Path) -> None:
        note = {"predicted": "9", "measured": "none of these", "values": "ratio = nan ± inf"}
        assert state.note("question", "bits.1", **note) == ""
        assert state.note("answer", "bits.1", text="a \ud800") == ""
        lab.report(tmp_path)
        [lesson] = data(tmp_path)["courses"][0]["lessons"]
        assert lesson["predictions"][0]["values"] == {"ratio": {"value": "nan", "half": "inf"}}
        assert (lesson["predictions"][0]["verdict"], lesson["answers"][0]["text"]) == ("open", "a ?")

    def test_a_name_is_a_text(self, tmp_path: Path) -> None:
        with pytest.raises(TypeError, match=r"takes a text: the learner's name; got 3\."):
            lab.report(tmp_path, name=3)  # type: ignore[arg-type]
        assert not (tmp_path / "report.html").exists()

    def test_neither_file_is_written_if_one_cannot_be(self, tmp_path: Path) -> None:
        (tmp_path / "report.json").mkdir()
        with pytest.raises(IsADirectoryError, match=r"report\.json is a folder"):
            lab.report(tmp_path)
        assert not (tmp_path / "report.html").exists()


def written(folder: Path, name: str, content: Any) -> Path:
    """A file with this content: bytes as they are, all else as JSON."""
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


def report_of(*predictions: tuple[Any, Any, Any], **others: Any) -> dict[str, Any]:
    """A report with these keys, predictions and measurements."""
    asked = [dict(zip(("key", "predicted", "measured"), one, strict=True)) for one in predictions]
    lesson = {"word": "bits", "predictions": asked, "answers": [], "quiz": None} | others
    return {"format": 1, "courses": [{"lessons": [lesson]}]}


UNREADABLE = {
    "not JSON": b"<html>",
    "not UTF-8": b"\xff\xfe{",
    "too deep": b"[" * 500_000,
    "too many digits": b'{"format": ' + b"1" * 10_000 + b"}",
    "not finite": b'{"format": 1, "courses": [NaN]}',
    "too large": b" " * (MOST_BYTES + 1),
    "a list": [],
    "nothing": {},
    "newer": {"format": 2},
    "no courses": {"format": 1, "courses": 3},
    "no lesson": {"format": 1, "courses": [{"lessons": [7]}]},
    "no text": report_of(("bits.1", 3, "")),
    "no key": report_of((None, "9", "")),
    "no quiz": report_of(quiz=[4, 5]),
}


class TestAClass:
    def test_predictions_quizzes_and_answers_are_counted(self, handed_in: dict[str, Path]) -> None:
        found = lab.class_report(folder / "report.json" for folder in handed_in.values())
        assert (found.students, found.unread) == (3, {})
        number, options = found.questions["bits.1"], found.questions["bits.2"]
        assert (number.students, number.compared, number.came_true, number.share) == (2, 1, 1, 1.0)
        assert number.number is not None
        assert (number.number.lower, number.number.median, number.number.upper) == (14.625, 19.75, 24.875)
        assert (options.students, options.came_true, options.share) == (1, 0, 0.0)
        assert options.options["fewer than half as many"] == 1
        assert options.measured["no more: half as many to as many"] == 1
        assert sum(options.options.values()) == sum(options.measured.values()) == 1
        assert (found.quizzes["bits"].students, found.quizzes["bits"].mean) == (1, 4.0)
        assert (found.answers["bits.1"].students, found.answers["bits.1"].words.median) == (1, len(WORDS.split()))
        table = str(found)
        for words in (
            "3 reports were read.",
            "1 of 1 came true (100%)",
            "median 19.8, quartiles 14.6 and 24.9",
            "mean 4.0",
        ):
            assert words in table, table

    def test_it_is_plain_values(self, handed_in: dict[str, Path]) -> None:
        found = class_report([handed_in["Student A"] / "report.json"]).to_dict()
        again = json.loads(json.dumps(found, allow_nan=False))
        assert again["questions"]["bits.2"]["share"] == 0.0
        assert again["questions"]["bits.1"]["number"]["median"] == 9.5
        assert again["answers"]["bits.1"]["words"]["upper"] == len(WORDS.split())

    @pytest.mark.parametrize("content", UNREADABLE.values(), ids=[*UNREADABLE])
    def test_a_file_that_is_no_report_is_named_with_a_sentence(self, content: Any, tmp_path: Path) -> None:
        good = written(tmp_path, "good.json", report_of(("bits.1", "9", "9.04 times")))
        bad = written(tmp_path, "bad.json", content)
        found = class_report([bad, good])
        assert (found.students, found.questions["bits.1"].came_true) == (1, 1)
        assert [*found.unread] == [str(bad)]
        assert re.fullmatch(r"(It|Its|There) .*\.", found.unread[str(bad)])
        assert f"{bad} is left out: " in str(found)

    def test_what_is_no_plain_file_is_not_waited_for(self, tmp_path: Path) -> None:
        good = written(tmp_path, "good.json", report_of())
        os.mkfifo(tmp_path / "pipe")
        (tmp_path / "link").symlink_to(good)
        others = [tmp_path / "pipe", tmp_path / "link", tmp_path / "none", tmp_path, tmp_path / "\x1b[2J", "a\0b"]
        found = class_report([good, *others])
        assert (found.students, len(found.unread)) == (1, len(others))
        assert "\x1b" not in str(found)

    def test_it_believes_no_verdict_and_shows_no_text_of_a_file(self, tmp_path: Path) -> None:
        secret = "<script>\ud800"
        path = written(
            tmp_path,
            "one.json",
            report_of(
                ("bits.1", "1e308", "1e-308 times"),
                ("bits.2", secret, secret),
                (secret, secret, secret),
                quiz={"right": 6, "of": 5},
                answers=[{"key": secret, "text": secret}],
                verdict="right",
            ),
        )
        found = class_report([path])
        assert (found.questions["bits.1"].came_true, found.quizzes, found.answers) == (0, {}, {})
        assert [*found.questions] == ["bits.1"]
        assert "script" not in str(found) + json.dumps(found.to_dict())

    def test_a_class_without_reports(self) -> None:
        assert str(class_report([])) == "0 reports were read."


NUMBER = re.compile(r"(?<![\w.,])\d[\d.,]*\d")
"""A number of two or more digits."""


def sentences(text: str) -> int:
    return len(re.findall(r"[.!?](?=\s|$)", text))


def all_answers() -> Iterator[tuple[str, str]]:
    """Each answer of the rubric, with its key."""
    for key, one in rubric.ANSWERS.items():
        yield from ((key, text) for text in (rubric.full(key), one.partial, one.poor))


class TestTheRubric:
    def test_every_task_of_the_course_has_answers_of_three_grades(self) -> None:
        tasks = [key for key in PROMPTS if lesson_of(key) in chosen().words]
        assert sorted(rubric.ANSWERS) == sorted(tasks)
        texts = [text for _, text in all_answers()]
        assert len({*texts}) == len(texts) == 3 * len(tasks)

    def test_no_answer_is_longer_than_two_sentences(self) -> None:
        for key, one in rubric.ANSWERS.items():
            assert max(map(sentences, (one.full, one.partial, one.poor))) <= 2, key
            assert one.misconception.endswith("."), key

    def test_the_full_answer_is_the_one_that_the_lessons_measurements_decide(self) -> None:
        for key, one in rubric.ANSWERS.items():
            assert PROMPTS[key].by, key
            assert rubric.full(key) == (one.full or PROMPTS[key].example)
            assert not one.full or not NUMBER.search(PROMPTS[key].example), key

    def test_the_numbers_of_the_other_answers_are_in_the_lesson_as_it_is_published(self) -> None:
        books = {lesson.word: lesson.path.read_text(encoding="utf-8") for lesson in lessons()}
        for key, one in rubric.ANSWERS.items():
            told = NUMBER.findall(f"{one.full} {one.partial} {one.poor}")
            assert [found for found in told if found not in books[lesson_of(key)]] == [], key

    def test_the_page_has_all_of_it(self) -> None:
        page = rubric.markdown()
        for key, text in all_answers():
            assert rubric._cell(text) in page, key
        for criterion in (*rubric.SENTENCES, *rubric.CAPSTONE):
            assert criterion.two in page
        assert {*rubric.DEFENCES} <= {*rubric.ANSWERS}
        assert re.findall(r"^\*\*([\w.]+)\.\*\*", page, re.MULTILINE) == [
            key for lesson in lessons() for key in rubric.ANSWERS if lesson_of(key) == lesson.word
        ]
