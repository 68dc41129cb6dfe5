"""The pages with plans and syllabi: their lessons, minutes, keys and sections are those of the course."""

import re

import pages
import pytest
from course_page import rows

from minips.lab.course import exercises, questions
from minips.lab.course.lessons import Lesson, lessons, read, source

PLANS, SYLLABI = "docs/lesson-plans.md", "docs/syllabi.md"
LESSONS = {lesson.number: lesson for lesson in lessons()}
IN_CLASS = 50
"""The minutes of a plan."""


def heading(lesson: Lesson) -> str:
    return f"{lesson.number} {lesson.title}"


def keys(text: str) -> set[str]:
    return set(re.findall(r"`([a-z]+\.\d+)`", text))


def test_each_lesson_has_a_plan_in_the_courses_order():
    found = [one for one in pages.headings(PLANS) if re.match(r"\d\d ", one)]
    assert found == [heading(lesson) for lesson in LESSONS.values()]


@pytest.mark.parametrize("number", LESSONS)
def test_a_plan_asks_the_lessons_question_and_fills_its_minutes(number):
    lesson = LESSONS[number]
    plan = pages.section(PLANS, heading(lesson))
    assert f"**The question.** {lesson.question}\n" in plan
    assert len(re.findall(r'^- ".+?"', plan, re.MULTILINE | re.DOTALL)) >= 2
    parts = re.findall(r"^\| (\d+) \| (.+) \|$", plan, re.MULTILINE)
    assert sum(int(minutes) for minutes, _ in parts) == IN_CLASS
    assert len(parts) <= 5
    words = sum(len(what.split()) for _, what in parts)
    assert 60 <= words <= 100, words
    sections = pages.anchors(f"lessons/{lesson.path.name}")
    named = [name for _, what in parts for name in re.findall(r"(?<!\*)\*([^*]+)\*(?!\*)", what)]
    assert named
    assert [name for name in named if name.replace("`", "").replace(" ", "-") not in sections] == []


@pytest.mark.parametrize("number", LESSONS)
def test_a_plan_has_both_predictions_and_both_exercises_of_its_lesson(number):
    lesson = LESSONS[number]
    plan = pages.section(PLANS, heading(lesson))
    assert keys(plan) == {*lesson.questions, *lesson.exercises}
    table = plan[plan.index("| minutes |") :]
    cells = read(lesson.path)["cells"]
    order = re.findall(r"lab\.predict\(\"(\w+\.\d+)\"\)", "\n".join(map(source, cells)))
    asked = [key for key in re.findall(r"`([a-z]+\.\d+)`", table) if key in lesson.questions]
    assert [*dict.fromkeys(asked)] == order


@pytest.mark.parametrize("page", [PLANS, SYLLABI, "docs/teachers.md"])
def test_every_key_that_is_named_exists(page):
    named = keys(pages.text(page))
    assert named - {*questions.QUESTIONS, *questions.PROMPTS, *exercises.EXERCISES} == set()
    assert named or page == "docs/teachers.md"


def sessions(section: str) -> dict[str, str]:
    """The sessions of a syllabus, by their headings."""
    return dict(
        re.findall(r"^### ([^\n]+)\n(.*?)(?=^### |\Z)", pages.section(SYLLABI, section), re.MULTILINE | re.DOTALL)
    )


def table(session: str) -> list[tuple[Lesson, list[str]]]:
    """The lessons of a session, each with the cells after its name."""
    found = re.findall(r"^\| \[(\d\d) (.+?)\]\(\.\./lessons/(.+?)\) \| (.+) \|$", session, re.MULTILINE)
    for number, title, file, _ in found:
        assert (title, file) == (LESSONS[number].title, LESSONS[number].path.name)
    return [(LESSONS[number], cells.split(" | ")) for number, _, _, cells in found]


def minutes(lesson: Lesson) -> tuple[int, int]:
    assert lesson.minutes, lesson
    return lesson.minutes


def totals(session: str) -> list[int]:
    (line,) = re.findall(r"^Together: .+$", session, re.MULTILINE)
    return [int(number) for number in re.findall(r"\d+", line)]


def test_the_afternoons_add_up():
    afternoons = sessions("Three afternoons")
    assert len(afternoons) == 3
    for session in afternoons.values():
        took = 0
        for lesson, (core, handed_in) in table(session):
            assert int(core) == minutes(lesson)[0]
            assert keys(handed_in) == {key for kind, key in lesson.core if kind == "exercise"}
            took += int(core)
        assert totals(session)[0] == took
        assert sum(totals(session)) == 180
        assert "**Discuss.**" in session


def test_the_weeks_add_up_and_hold_every_lesson():
    weeks = sessions("Eight weeks")
    assert len(weeks) == 8
    whole = {"in class": 0, "at home": 0}
    for session in weeks.values():
        took = {"in class": 0, "at home": 0, "homework": 0}
        for lesson, (place, core, homework, handed_in) in table(session):
            where = place.partition(",")[0]
            assert (int(core), int(homework)) == (
                IN_CLASS if where == "in class" else minutes(lesson)[0],
                minutes(lesson)[1],
            )
            assert keys(handed_in) == {*lesson.exercises}
            took[where] += int(core)
            took["homework"] += int(homework)
        assert totals(session) == [*took.values()]
        assert took["in class"] == 2 * IN_CLASS
        assert "**Discuss.**" in session
        whole["in class"] += took["in class"]
        whole["at home"] += took["at home"] + took["homework"]
    held = [lesson.number for session in weeks.values() for lesson, _ in table(session)]
    assert sorted(held) == [*LESSONS]
    said = " ".join(pages.section(SYLLABI, "Eight weeks").split())
    assert "All weeks together: {in class} minutes in class, {at home} at home.".format(**whole) in said
    assert f"The {len(exercises_of(held))} exercises give {len(exercises_of(held))} points" in said


def exercises_of(numbers: list[str]) -> set[str]:
    return {key for number in numbers for key in LESSONS[number].exercises}


@pytest.mark.parametrize("name", ["Three afternoons", "Eight weeks"])
def test_no_lesson_comes_before_one_that_it_builds_on(name):
    needs = {row.lesson.number: row.needs for row in rows().values()}
    seen: set[str] = set()
    places = {"at home, before": 0, "in class": 1, "at home, after": 2}
    for session in sessions(name).values():
        for lesson, _ in sorted(table(session), key=lambda row: places.get(row[1][0], 0)):
            assert {*needs[lesson.number]} <= seen, (lesson.number, needs[lesson.number])
            seen.add(lesson.number)
    assert len(seen) in (12, len(LESSONS))
