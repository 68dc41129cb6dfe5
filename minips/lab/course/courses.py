"""The courses that are installed. A package brings one by an entry point of the group ``minips.course``, which names a
`Course`:

    [project.entry-points."minips.course"]
    algebra = "algebra_course:course"

Of each lesson the modules ``questions`` and ``checks`` are imported, where the package has them:
``algebra_course.matrices.questions`` for the word "matrices". They add what is theirs to the tables of
`minips.lab.course.questions` and `minips.lab.course.exercises`, under keys that begin with the course's name:
``algebra:matrices.1``. ``MOVED`` in the package's module may lead old names of modules to new ones, see
`minips.lab.moved`.
"""

import re
import sys
import traceback
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from minips.words import check_type, join_names, message_of, suggestion

GROUP = "minips.course"
FIRST = "minips"
"""The name of the course that is taken where none is named; its keys have no name before them."""
FAILED: dict[str, str] = {}
"""In a sentence, why a course is not among those that are installed, by its name."""

T = TypeVar("T")
_added: list[tuple[dict[str, Any], str]] = []
"""What was added so far: the table and the key."""


@dataclass(frozen=True)
class Course:
    """A course: its name, its title, the folder of its notebooks, and the words of its lessons in their order.

    A word is the name of the lesson's folder, beside the module that the entry point names. Its notebook begins with
    its place in two digits: ``00_votes.ipynb`` is that of ``lessons[0]``. TypeError and ValueError for other values.
    """

    name: str
    title: str
    notebooks: Path
    lessons: tuple[str, ...]
    numbered: Mapping[str, str] = field(default_factory=dict)
    """The words of lessons by the file names of an earlier edition, whose keys had the notebook's number for a word:
    what it called 14.1 is found, and what a learner has done in it counts. Minips' own course alone had one.
    """

    def __post_init__(self) -> None:
        for taker, value, kind, what in (
            ("A course's name", self.name, str, "text"),
            ("A course's title", self.title, str, "text"),
            ("A course's notebooks", self.notebooks, Path, "a Path: their folder"),
            ("A course's lessons", self.lessons, tuple, "a tuple of words"),
        ):
            check_type(taker, value, kind, what)
        if not re.fullmatch(r"\w[\w-]*", self.name):
            raise ValueError(f"A course's name is one word, since keys begin with it; got {self.name!r}.")
        words = [*map(str, self.lessons)]
        if not words or len({*words}) < len(words) or not all(map(str.isidentifier, words)):
            raise ValueError(f"A course's lessons are different words, each its folder's name; got {self.lessons!r}.")

    @property
    def prefix(self) -> str:
        """The beginning of all keys."""
        return "" if self.name == FIRST else f"{self.name}:"

    @property
    def words(self) -> tuple[str, ...]:
        """The beginnings of the lessons' keys, in the lessons' order: ``mine:votes``."""
        return tuple(self.prefix + word for word in self.lessons)

    def paths(self) -> dict[str, Path]:
        """The notebooks by the beginnings of their keys. FileNotFoundError for a lesson that has not just one."""
        found = {}
        for place, word in enumerate(self.words):
            paths = [*self.notebooks.glob(f"{place:02}_*.ipynb")]
            if len(paths) != 1:
                got = join_names(sorted(path.name for path in paths)) if paths else "none"
                raise FileNotFoundError(
                    f"The lesson {word} needs one notebook {place:02}_….ipynb in {self.notebooks}; got {got}."
                )
            found[word] = paths[0]
        return found


@cache
def installed() -> dict[str, Course]:
    """The courses by their packages, minips' own before others, once their lessons are imported. A warning tells of
    one that fails to load; ImportError where there is none, or where none loads.
    """
    found: dict[str, Course] = {}
    for entry in sorted(dict.fromkeys(entry_points(group=GROUP)), key=_is_anothers):
        if entry.name in FAILED:  # its modules would not be run again
            continue
        before = len(_added)
        try:
            if entry.name in [course.name for course in found.values()]:
                raise ValueError("Another course that is installed has the same name.")
            course = _loaded(entry)
            _check_keys(course, [key for _, key in _added[before:]])
            found[entry.module] = course
        except (Exception, SystemExit) as error:
            for known, key in _added[before:]:
                del known[key]
            del _added[before:]
            mend = f"Mend its package, {entry.module}, or uninstall it."
            why = f"{type(error).__name__}: {message_of(error)}{_place(error, entry)}"
            FAILED[entry.name] = f"The course {entry.name!r} cannot be loaded. {mend} {why}"
    if not found:
        nothing = "There is no course: none is installed. Install minips again, which brings one."
        raise ImportError(" ".join(FAILED.values()) or nothing)
    for words in FAILED.values():
        warnings.warn(words, stacklevel=2)
    return found


def _is_anothers(entry: EntryPoint) -> bool:
    """False for the course that comes with minips."""
    return entry.dist is None or entry.dist.name != FIRST


def _loaded(entry: EntryPoint) -> Course:
    course = entry.load()
    if not isinstance(course, Course):
        raise TypeError(f"{entry.value} is {course!r}. Expected a minips.lab.Course.")
    if course.name != entry.name:
        raise ValueError(f"Its entry point is named {entry.name!r}, the course {course.name!r}. Give both one name.")
    for word in course.lessons:
        package = f"{entry.module}.{word}"
        for part in ("questions", "checks"):
            if find_spec(f"{package}.{part}"):
                import_module(f"{package}.{part}")
    course.paths()
    return course


def _check_keys(course: Course, keys: list[str]) -> None:
    """ValueError where a key belongs to no lesson of the course."""
    grammar = rf"({'|'.join(course.words)})(\.\d+)?"
    if wrong := [str(key) for key in keys if not re.fullmatch(grammar, str(key))]:
        lessons = join_names(course.words)
        raise ValueError(f"Expected keys such as {course.words[0]}.1, of {lessons}; got {join_names(wrong)}.")


def _place(error: BaseException, entry: EntryPoint) -> str:
    """The line of the course's own code at which an error arose, in brackets."""
    package = entry.module.partition(".")[0]
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if package in Path(frame.filename).with_suffix("").parts]
    return f" ({own[-1].filename}, line {own[-1].lineno})" if own else ""


def add(kind: str, known: dict[str, T], key: str, thing: T) -> None:
    """Add what a course has to the table of its kind. ValueError where the table has this key already."""
    if key in known:
        raise ValueError(f"There are two of the {kind} {key}. Give one of them another number.")
    known[key] = thing
    _added.append((known, key))


def chosen() -> Course:
    """The course that is named `FIRST`, or else the first one. ImportError as in `installed`."""
    return next(iter(installed().values()))


def named(name: str) -> Course:
    """The course of this name. ValueError where none is installed, ImportError where it fails to load."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the error says it
        found = {course.name: course for course in installed().values()}
    if name in found:
        return found[name]
    if name in FAILED:
        raise ImportError(FAILED[name])
    raise ValueError(f"There is no course {name!r}: it is not installed. {suggestion(name, found)}")


def course_of(key: str) -> Course:
    """The course that a key belongs to. ValueError and ImportError as in `named`."""
    name, colon, _ = key.partition(":")
    return named(name) if colon else chosen()


def numbers() -> dict[int, str]:
    """The words of lessons by their numbers in an earlier edition."""
    return {int(name[:2]): word for name, word in chosen().numbered.items()}


def lesson_of(key: str) -> str:
    """The beginning of a key, which names its lesson.

    >>> lesson_of("wait.1"), lesson_of("mine:votes.1")
    ('wait', 'mine:votes')
    """
    return key.partition(".")[0]


def folders() -> list[Path]:
    """The folders of the courses' packages."""
    return [Path(sys.modules[package].__file__ or "").parent for package in installed()]
