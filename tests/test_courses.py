"""Courses that are installed: how they are found, what comes of one that cannot be loaded, and old names of modules."""

import re
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest
from nbclient import NotebookClient

import minips as ps
import minips_course
from minips import lab
from minips.lab.course import courses, exercises, questions
from minips.lab.course.exercises import Refused
from minips.lab.course.grading import with_a_kernel
from minips.lab.course.lessons import lessons
from minips_course.trust.traitors import Traitors

ROOT = Path(__file__).parents[1]
MOVED = {old: news for old, news in minips_course.MOVED.items() if all(map(find_spec, news))}
OLD_COPIES = """
from minips.lab.course import ddp_20 as ddp
from minips.lab.course import exchanges_19 as exchanges
from minips.lab.course import pictures_14 as pictures
from minips.lab.course import programs_04 as programs
from minips.lab.course import waiting_14 as waiting
from minips.lab.course.lesson_16 import Traitors
from minips.lab.course.queues_12 import QueueEnd, QueueTransport
from minips.lab.measure import crowd
from minips.lab.measure import trips

waiting.Log, waiting.lags, exchanges.TreeInPieces, programs.Pair, pictures.draw_lags
ddp.Ranks, ddp.naive, ddp.flat, ddp.overlapped, ddp.ladder, ddp.learn, trips.frames, trips.frames_server, crowd.alone
"""
"""The lines by which notebooks of the second edition import a lesson's modules, and what they use of these."""

OLD_LINES = {
    "04_a_lectures_server": {
        "from minips_course.lecture import panel, programs, rpc": (
            "from minips.lab.course import programs_04 as programs\nfrom minips_course.lecture import panel, rpc"
        ),
    },
}
"""By notebook: what stands there, and what stood there in the second edition."""


def program(words: str, *folders: Path) -> str:
    """What a fresh interpreter prints, with these folders on its path."""
    path = f"import sys; sys.path[:0] = {[*map(str, folders)]!r}\n"
    done = subprocess.run(
        [sys.executable, "-c", path + textwrap.dedent(words)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def brought(site: Path, name: str, entry: str, **files: str) -> None:
    """A package of that name, as pip would leave it, with an entry point for a course."""
    (site / f"{name}-1.dist-info").mkdir(parents=True)
    (site / f"{name}-1.dist-info" / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    (site / f"{name}-1.dist-info" / "entry_points.txt").write_text(f"[minips.course]\n{name} = {entry}\n")
    for path, text in files.items():
        file = site / name / f"{path.replace('__in__', '/')}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text))


def test_the_course_that_comes_with_minips() -> None:
    course = courses.chosen()
    assert course is minips_course.course
    assert isinstance(course, lab.Course)
    assert course.notebooks == ROOT / "lessons"
    assert course.lessons == minips_course.LESSONS == tuple(lesson.word for lesson in lessons())
    assert {*course.numbered.values()} <= {*course.lessons}
    for word in course.lessons:
        assert all(find_spec(f"minips_course.{word}.{part}") for part in ("questions", "checks", "cases"))


def test_minips_does_not_know_its_course() -> None:
    """The layers of imports say so, too; here neither a string nor a comment names the package."""
    named = [path for path in (ROOT / "minips").rglob("*.py") if "minips_course" in path.read_text(encoding="utf-8")]
    assert named == []


A_COURSE = """
from pathlib import Path
from minips.lab import Course

course = Course("algebra", "Matrices", Path(__file__).parent, ("matrices",))
"""
NOTEBOOK = '{"cells": [{"cell_type": "markdown", "source": "# Matrices"}], "metadata": {}, "nbformat": 4}'
QUESTIONS = """
from minips.lab.course.questions import card

card("algebra:matrices.1", "It is {x}.")
"""
CHECKS = """
from minips.lab.course.exercises import asks, case, refuse_if

@asks("algebra:matrices.1")
def three(number, rng):
    \"\"\"Give three.\"\"\"
    refuse_if(number != 3, f"It is {number}.")
    return "Three."

@asks("algebra:matrices.2", "Think.")
def misspelt(answer, rng):
    \"\"\"Write f(x).\"\"\"
    with case("For the number 1:"):
        for got in answer(1):
            refuse_if(got != wnated, "It is another.")
        return f"{got}"
"""


def test_a_teacher_brings_a_course_in_a_package_of_her_own(tmp_path: Path) -> None:
    lesson = {"matrices__in____init__": "", "matrices__in__questions": QUESTIONS, "matrices__in__checks": CHECKS}
    brought(tmp_path, "algebra", "algebra:course", __init__=A_COURSE, **lesson)
    (tmp_path / "algebra" / "00_matrices.ipynb").write_text(NOTEBOOK)
    said = program(
        """
        from minips import lab
        from minips.lab.course import courses
        lab.say("algebra:matrices.1", x=2)
        print(lab.check("algebra:matrices.1", 3))
        print(lab.check("algebra:matrices.1", 4))
        lab.hint("algebra:matrices.1")
        print([course.title for course in courses.installed().values()], courses.chosen().name)
        """,
        tmp_path,
    )
    assert "It is 2." in said
    assert "✓ algebra:matrices.1 is done. Three." in said
    assert "✗ algebra:matrices.1: not yet. It is 4.\nThere is no hint for algebra:matrices.1.\n" in said
    assert "'Matrices'" in said
    assert minips_course.course.title in said
    assert "] minips\n" in said


def test_a_checks_own_misspelling_is_not_the_learners(tmp_path: Path) -> None:
    """Only where none of the learner's code runs, and not a name that an empty answer leaves unbound."""
    lesson = {"matrices__in____init__": "", "matrices__in__checks": CHECKS}
    brought(tmp_path, "algebra", "algebra:course", __init__=A_COURSE, **lesson)
    (tmp_path / "algebra" / "00_matrices.ipynb").write_text(NOTEBOOK)
    said = program(
        """
        from minips import lab
        for answer in (lambda x: [x], lambda x: [mine], lambda x: []):
            print(lab.check("algebra:matrices.2", answer))
        from minips.lab.course import exercises, running
        print(*running._tried(exercises.exercise("algebra:matrices.2"), lambda: lambda x: [x], seed=0))
        import algebra.matrices.checks as checks
        print(lab.show(checks.three).place)
        try:
            lab.check("matrices.2", None)
        except ValueError as error:
            print(error)
        """,
        tmp_path,
    )
    stopped = "✗ algebra:matrices.2: not yet. It stopped with"
    line = 1 + CHECKS.splitlines().index('            refuse_if(got != wnated, "It is another.")')
    for words in (
        f"not yet. The check itself failed: name 'wnated' is not defined, in algebra/matrices/checks.py, line {line}. "
        f"Tell your teacher.\n{stopped} NameError: name 'mine' is not defined\n",
        f"{stopped} UnboundLocalError: ",
        "\nFor the number 1.\n",
        "\nblocked The check itself failed: name 'wnated' is not defined, in ",
        "\nalgebra.matrices.checks, line 4\n",
        "\nThere is no exercise 'matrices.2'. Did you mean algebra:matrices.2?\n",
    ):
        assert words in said, said


def test_a_fresh_kernel_checks_a_learners_server_before_it_takes_it(tmp_path: Path) -> None:
    """The checks are the course's, which nothing has loaded before ``lab.own``."""
    (tmp_path / "server.py").write_text("# Lesson 03\nclass Server:\n    pass\n")
    said = program(
        f"""
        import os
        os.environ.pop("MINIPS_AUTOPLAY", None)
        os.chdir({str(tmp_path)!r})
        from minips import lab
        lab.own("server", lesson="wire")
        """
    )
    assert said.startswith("The given server: yours does not pass. ")


def test_a_courses_code_is_no_learners() -> None:
    """A call of it is no answer of one's own, and its lines are none of the learner's cell."""
    with pytest.raises(Refused, match="it calls minips' own __init__"):
        exercises.unaided(Traitors, *ps.datasets.digits())
    words = lab.check("train.3", np.linalg.inv).words
    assert "It stopped with " in words
    assert "of your cell" not in words


ALONE = """
from pathlib import Path
from minips.lab.course import Course, Expected, Option, asks, estimate, question, sentence

here = Path(__file__).parent
(here / "00_ranks.ipynb").touch()
(here / "ranks").mkdir(exist_ok=True)
course = Course({name!r}, "Broken", here, {lessons!r})
"""
"""A course whose keys are added beside it."""


def broken(rest: str = "", name: str = "broken", lessons: tuple[str, ...] = ("ranks",)) -> str:
    return ALONE.format(name=name, lessons=lessons) + rest


ASKS = '''
@asks({key!r})
def one(thing, rng):
    """Give one."""
    return ""
'''
EXPECTED = "ValueError: Expected keys such as broken:ranks.1, of broken:ranks; got"
BROKEN = {
    "another prefix": (
        "broken:course",
        broken('sentence("train.77", "x")\nsentence("broken:ranks.1", "x")\nsentence("mine:ranks.1", "x")'),
        f"{EXPECTED} train.77 and mine:ranks.1. (",
    ),
    "no prefix": ("broken:course", broken(ASKS.format(key="ranks.1")), f"{EXPECTED} ranks.1. ("),
    "no lesson of its": (
        "broken:course",
        broken('sentence("broken:rank.1", "x")'),
        f"{EXPECTED} broken:rank.1. (",
    ),
    "no number": ("broken:course", broken('sentence("broken:ranks.one", "x")'), f"{EXPECTED} broken:ranks.one. ("),
    "no text": ("broken:course", broken('sentence(1, "x")'), f"{EXPECTED} 1. ("),
    "two exercises": (
        "broken:course",
        broken(2 * ASKS.format(key="broken:ranks.1")),
        "ValueError: The exercise broken:ranks.1 is defined twice. Give one of them another number. (",
    ),
    "two sentences": (
        "broken:course",
        broken(2 * 'sentence("broken:ranks.1", "x")\n'),
        "ValueError: The sentence broken:ranks.1 is defined twice. Give one of them another number. (",
    ),
    "no task": (
        "broken:course",
        broken(ASKS.format(key="broken:ranks.1").replace("Give one.", "")),
        "ValueError: broken:ranks.1: the check one has no docstring. Write the task there. (",
    ),
    "limits the wrong way round": (
        "broken:course",
        broken('estimate("broken:ranks.1", "Many?", "ranks", (11, 9), "So.", "No.")'),
        "ValueError: broken:ranks.1: expected is two numbers above 0, the smaller first; got (11, 9). (",
    ),
    "one limit": (
        "broken:course",
        broken('estimate("broken:ranks.1", "Many?", "ranks", 9, "So.", "No.")'),
        "ValueError: broken:ranks.1: expected is two numbers above 0, the smaller first; got 9. (",
    ),
    "nothing expected": (
        "broken:course",
        broken('yes = Option("yes", bool, "So.")\nquestion("broken:ranks.1", "Is it?", yes, yes, otherwise="No.")'),
        "ValueError: broken:ranks.1: expected one option that is Expected(…), got 0. (",
    ),
    "another name": (
        "broken:course",
        broken(name="mine"),
        "ValueError: Its entry point is named 'broken', the course 'mine'. Give both one name.",
    ),
    "a lesson without a notebook": (
        "broken:course",
        broken("(here / 'votes').mkdir(exist_ok=True)", lessons=("ranks", "votes")),
        "FileNotFoundError: The course 'broken' needs one notebook for each of its 2 lessons, with different numbers, ",
    ),
    "a lesson with two notebooks": (
        "broken:course",
        broken("(here / '00_ranks-Copy1.ipynb').touch()"),
        "FileNotFoundError: The course 'broken' needs one notebook for each of its 1 lessons, with different numbers, ",
    ),
    "ends the program": ("broken:course", "raise SystemExit('Bye.')", "SystemExit: Bye. ("),
    "raises": ("broken:course", "1 / 0", "ZeroDivisionError: division by zero"),
    "names nothing": ("broken:course", "", "AttributeError: "),
    "is no course": ("broken:course", "course = 3", "TypeError: broken:course is 3. Expected a minips.lab.Course."),
    "is not there": ("absent:course", "", "ModuleNotFoundError: No module named 'absent'"),
    "lacks a lesson": (
        "broken:course",
        "from pathlib import Path\nfrom minips.lab import Course\ncourse = Course('broken', 'B', Path(), ('gone',))",
        "ModuleNotFoundError: No module named 'broken.gone'",
    ),
}


@pytest.fixture
def anew(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Courses are looked for again, in this test and after it."""
    for rest in (True, False):
        courses.installed.cache_clear()
        courses.FAILED.clear()
        if rest:
            yield
            monkeypatch.undo()
            sys.modules.pop("broken", None)


@pytest.mark.usefixtures("anew")
@pytest.mark.parametrize(("entry", "text", "words"), BROKEN.values(), ids=[*BROKEN])
@pytest.mark.parametrize("alone", [True, False], ids=["alone", "beside another"])
def test_one_that_cannot_be_loaded_is_a_sentence(
    entry: str, text: str, words: str, alone: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    brought(tmp_path, "broken", entry, __init__=text)
    monkeypatch.syspath_prepend(tmp_path)
    if alone:
        real = courses.entry_points
        monkeypatch.setattr(courses, "entry_points", lambda group: [x for x in real(group=group) if x.name == "broken"])
        with pytest.raises(ImportError) as caught:
            lab.check("train.1", None)
        said = str(caught.value)
    else:
        with pytest.warns(UserWarning, match="cannot be loaded") as warned:
            assert not lab.check("train.1", None)
        (one,) = warned
        said = str(one.message)
    mend = f"Mend its package, {entry.partition(':')[0]}, or uninstall it."
    assert said.startswith(f"The course 'broken' cannot be loaded. {mend} {words}")
    if words.endswith("("):
        assert re.search(r"broken.__init__\.py, line \d+\)$", said)
    tables = (exercises.EXERCISES, questions.QUESTIONS, questions.SENTENCES)
    assert not any(str(key).startswith("broken") or key in (1, "train.77") for table in tables for key in table)
    with pytest.raises(ImportError) as caught:
        lab.check("broken:ranks.1", None)
    assert str(caught.value) == said


@pytest.mark.usefixtures("anew")
def test_two_of_one_name_are_a_sentence_and_the_first_one_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("minips", "broken"):
        other = broken(name=name).replace('"Broken"', '"The other"')
        brought(tmp_path / name, "broken", "broken:course", __init__=other)
        (entries,) = (tmp_path / name).glob("*/entry_points.txt")
        entries.write_text(f"[minips.course]\n{name} = broken:course\n")
    monkeypatch.syspath_prepend(tmp_path / "minips")
    with pytest.warns(UserWarning, match=r"The course 'minips' cannot be loaded\. .*has the same name\.$"):
        assert courses.chosen() is minips_course.course
    assert courses.named("minips") is minips_course.course


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"name": "my:own"}, "A course's name is one word, since keys begin with it; got 'my:own'."),
        ({"name": ""}, "one word"),
        ({"name": 3}, "A course's name takes text; got 3."),
        ({"notebooks": "here"}, "A course's notebooks takes a Path: their folder; got 'here'."),
        ({"lessons": "ranks"}, "A course's lessons takes a tuple of words; got 'ranks'."),
        ({"lessons": ()}, "A course's lessons are different words, each its folder's name; got ()."),
        ({"lessons": ("a", "a")}, "different words"),
        ({"lessons": ("1 a",)}, "different words"),
    ],
)
def test_what_is_no_course_is_a_sentence(changes: dict[str, Any], words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=re.escape(words)):
        lab.Course(**{"name": "mine", "title": "Mine", "notebooks": Path(), "lessons": ("a",)} | changes)


@pytest.mark.usefixtures("anew")
def test_none_at_all_is_a_sentence(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from minips.cli import main

    monkeypatch.setattr(courses, "entry_points", lambda group: [])
    for call in (lambda: lab.say("trust.1"), lab.progress, lambda: lab.own("server", lesson="wire")):
        with pytest.raises(ImportError, match="There is no course: none is installed"):
            call()
    assert main(["check", "trust.1", "mine.ipynb"]) == 1
    assert capsys.readouterr().err.startswith("minips: There is no course: none is installed.")


@pytest.mark.parametrize("old", MOVED)
def test_an_old_name_has_what_it_had_and_warns_once_with_the_new_place(old: str) -> None:
    sys.modules.pop(old, None)
    with pytest.warns(DeprecationWarning, match=f"The module {old} is now ") as warned:
        module = import_module(old)
    (one,) = warned
    for new in MOVED[old]:
        assert new in str(one.message)
        for name, value in vars(import_module(new)).items():
            assert name.startswith("__") or getattr(module, name) is value
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert import_module(old) is module


@pytest.mark.soak
def test_an_old_copys_imports_work_and_the_warning_is_of_its_line() -> None:
    said = program(
        f"""
        import warnings
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            exec(compile({OLD_COPIES!r}, "a cell", "exec"))
        assert {{one.filename for one in warned}} == {{"a cell"}}
        print(len(warned), len({{one.lineno for one in warned}}))
        """
    )
    assert said.split() == ["9", "9"]


CALLS: dict[str, Callable[[str], Any]] = {
    "predict": lambda key: lab.predict(f"{key}.1").question,
    "say": lambda key: lab.say(f"{key}.3", s=2, reads=100, most=2),
    "answer": lambda key: lab.answer(f"{key}.2", "a table"),
    "quiz": lab.quiz,
    "hint": lambda key: lab.hint(f"{key}.3"),
    "check": lambda key: lab.check(f"{key}.2", None),
    "own": lambda key: lab.own("server", lesson=key).__name__,
    "recorded": lambda key: lab.recorded(f"{key}.torch"),
}
"""What takes a key, or a lesson."""


@pytest.mark.parametrize("name", CALLS)
def test_a_lessons_number_in_the_second_edition_means_its_word(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    word, *numbers = ("lecture", "04", "4") if name == "recorded" else ("wait", "14")
    said = []
    for key in (word, *numbers):
        monkeypatch.setattr(exercises, "_hinted", {})
        result = repr(CALLS[name](key))
        said.append((result, re.sub("[0-9a-f]{32}", "a widget", capsys.readouterr().out)))
    assert said == [said[0]] * len(said)
    assert not any(re.search(r"\b14(\.\d)?\b", words) for words in said[0])


def as_of_the_second_edition(source: str) -> str:
    """A cell whose keys have numbers, not words."""
    for notebook, word in minips_course.SECOND_EDITION.items():
        source = re.sub(rf'(lab\.(?!own)\w+\(|lesson=)"{word}(?=(\.\w+)?")', rf'\g<1>"{notebook[:2]}', source)
    return source


@pytest.mark.soak
@pytest.mark.outside
@pytest.mark.parametrize(("name", "lines"), OLD_LINES.items(), ids=[*OLD_LINES])
def test_an_old_copy_runs_to_its_end(name: str, lines: dict[str, str], tmp_path: Path) -> None:
    book: Any = nbformat.read(ROOT / "lessons" / f"{name}.ipynb", as_version=4)  # type: ignore[no-untyped-call]
    for new, old in lines.items():
        assert any(new in cell.source for cell in book.cells)
        for cell in book.cells:
            cell.source = cell.source.replace(new, old)
    for cell in book.cells:
        cell.source = as_of_the_second_edition(cell.source)
    code = "\n".join(cell.source for cell in book.cells if cell.cell_type == "code")
    assert {key[:2] for key in re.findall(r'lab\.(?!own)\w+\("([\w.]+)"', code)} == {name[:2]}
    with_a_kernel(NotebookClient(book, timeout=300, resources={"metadata": {"path": tmp_path}}).execute)
    said = "".join(one.get("text", "") for cell in book.cells for one in cell.get("outputs", []))
    assert said.count("DeprecationWarning: The module minips.lab.course.") == sum(
        old.count("minips.lab.course") for old in lines.values()
    )


def test_what_was_never_there_is_not_found() -> None:
    for name in ("minips.lab.course.lesson_99", "minips.lab.measure.nothing", "minips.lab.nothing"):
        with pytest.raises(ModuleNotFoundError, match=name):
            import_module(name)
