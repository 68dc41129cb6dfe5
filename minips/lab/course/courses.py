"""The installed courses. A package provides one through an entry point in the group ``minips.course``, which names a
`Course`:

    [project.entry-points."minips.course"]
    algebra = "algebra_course:course"

minips imports each lesson's modules ``questions`` and ``checks``, if they exist: for the lesson "matrices",
``algebra_course.matrices.questions``. They add entries to the tables of `minips.lab.course.questions` and
`minips.lab.course.exercises`, under keys that begin with the course's name: ``algebra:matrices.1``. The package's own
module ``milestones``, if it exists, adds milestones of a learner's server. ``MOVED`` in the package's module may map
old module names to new ones, see `minips.lab.moved`.
"""

import os
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
from types import FrameType
from typing import Any, TypeVar

from minips.lab.moved import GROUP
from minips.words import check_type, join_names, message_of, suggestion

FIRST = "minips"
"""The name of the default course, whose keys have no prefix."""
FAILED: dict[str, str] = {}
"""Maps the name of a course that failed to load to a sentence with the reason."""

T = TypeVar("T")
_added: list[tuple[dict[str, Any], str, str]] = []
"""The table and the key of each entry that was added, and the file and the line that added it."""
PACKAGE = Path(__file__).parents[2]
"""The folder of minips."""


@dataclass(frozen=True)
class Course:
    """A course: its name, its title, the folder of its notebooks, and the names of its lessons in their order.

    A lesson's name is one word, that of its folder in the course's package. Its notebook's file name begins with two
    digits, which rise from lesson to lesson and may leave gaps: ``00_votes.ipynb`` for ``lessons[0]``. TypeError and
    ValueError for other values.
    """

    name: str
    title: str
    notebooks: Path
    lessons: tuple[str, ...]
    numbered: Mapping[str, str] = field(default_factory=dict)
    """Maps notebooks' file names in an earlier edition to lessons. That edition's keys began with a notebook's number:
    14.1 is still found, and a learner's progress under it still counts. Only minips' own course had such an edition.
    """
    parts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Maps the title of each part of the course to its lessons; empty for a course in one part."""
    ways: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Maps the name of each way through the course, such as "an afternoon", to the lessons on it."""

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
        if self.parts and sorted(word for part in self.parts.values() for word in part) != sorted(words):
            raise ValueError(f"A course's parts contain each of its lessons once; got {self.parts!r}.")
        if strange := {word for way in self.ways.values() for word in way} - {*words}:
            raise ValueError(f"A course's ways lead through its lessons; got {join_names(sorted(strange))}.")

    @property
    def prefix(self) -> str:
        """The text with which all keys begin."""
        return "" if self.name == FIRST else f"{self.name}:"

    @property
    def words(self) -> tuple[str, ...]:
        """The lessons' names, each with the prefix, in order; for example ``mine:votes``."""
        return tuple(self.prefix + word for word in self.lessons)

    def paths(self) -> dict[str, Path]:
        """Map each of `words` to its notebook. FileNotFoundError unless there is one for each lesson."""
        paths = sorted(self.notebooks.glob("[0-9][0-9]_*.ipynb"))
        if len(paths) != len(self.words) or len({path.name[:2] for path in paths}) < len(paths):
            got = join_names([path.name for path in paths]) if paths else "none"
            raise FileNotFoundError(
                f"The course {self.name!r} needs one notebook for each of its {len(self.words)} lessons, with "
                f"different numbers, such as 00_{self.lessons[0]}.ipynb, in {self.notebooks}; got {got}."
            )
        return dict(zip(self.words, paths, strict=True))


@cache
def installed() -> dict[str, Course]:
    """Import the lessons of all courses, and map each package to its course, minips' own first. Warns about a course
    that fails to load. ImportError if no course is installed, or if none loads.
    """
    found: dict[str, Course] = {}
    for entry in sorted(dict.fromkeys(entry_points(group=GROUP)), key=_is_anothers):
        if entry.name in FAILED:  # importing again would not run its modules again
            continue
        before = len(_added)
        try:
            if entry.name in [course.name for course in found.values()]:
                raise ValueError("Another course that is installed has the same name.")
            course = _loaded(entry)
            _check_keys(course, {str(key): place for _, key, place in _added[before:]})
            found[entry.module] = course
        except (Exception, SystemExit) as error:
            for known, key, _ in _added[before:]:
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
    """Return False for the course that comes with minips."""
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
    if find_spec(f"{entry.module}.milestones"):
        import_module(f"{entry.module}.milestones")
    course.paths()
    return course


def _check_keys(course: Course, keys: Mapping[str, str]) -> None:
    """ValueError if a key does not belong to a lesson of the course. ``keys`` maps each key to its place."""
    grammar = rf"({'|'.join(course.words)})(\.\d+)?"
    if wrong := [key for key in keys if not re.fullmatch(grammar, key)]:
        known, got = join_names(course.words), join_names(wrong)
        raise ValueError(f"Expected keys such as {course.words[0]}.1, of {known}; got {got}. ({keys[wrong[0]]})")


def _place(error: BaseException, entry: EntryPoint) -> str:
    """Return, in brackets, the line of the course's code that raised the error."""
    package = entry.module.partition(".")[0]
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if package in Path(frame.filename).with_suffix("").parts]
    return f" ({own[-1].filename}, line {own[-1].lineno})" if own else ""


def add(kind: str, known: dict[str, T], key: str, thing: T) -> None:
    """Add an entry to the table of its kind. ValueError if the table already has this key."""
    if key in known:
        raise ValueError(f"The {kind} {key} is defined twice. Give one of them another number.")
    known[key] = thing
    _added.append((known, key, _callers_place()))


def _callers_place() -> str:
    """Return the file and the line of the code, outside of minips, that is running."""
    frame: FrameType | None = sys._getframe(1)
    while frame and frame.f_code.co_filename.startswith(f"{PACKAGE}{os.sep}"):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}, line {frame.f_lineno}" if frame else ""


def chosen() -> Course:
    """Return the course named `FIRST`, or else the first one. ImportError as in `installed`."""
    return next(iter(installed().values()))


def named(name: str) -> Course:
    """Return the course with this name. ValueError if it is not installed, ImportError if it fails to load."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the error contains the warning's text
        found = {course.name: course for course in installed().values()}
    if name in found:
        return found[name]
    if name in FAILED:
        raise ImportError(FAILED[name])
    raise ValueError(f"There is no course {name!r}: it is not installed. {suggestion(name, found)}")


def course_of(key: str) -> Course:
    """Return the course that a key belongs to. ValueError and ImportError as in `named`."""
    name, colon, _ = key.partition(":")
    return named(name) if colon else chosen()


def numbers() -> dict[int, str]:
    """Map each lesson's number in the earlier edition to the lesson's name."""
    return {int(name[:2]): word for name, word in chosen().numbered.items()}


def is_retired(call: str, key: str) -> bool:
    """True if an earlier edition of the lesson had this key, and today's has another task or none in its place.

    A lesson's ``questions`` lists such numbers in ``RETIRED``, by the function that cells call, such as "predict".
    """
    lesson, _, number = key.partition(".")
    modules = (sys.modules.get(f"{package}.{lesson.rpartition(':')[2]}.questions") for package in installed())
    return any(number in map(str, getattr(module, "RETIRED", {}).get(call, ())) for module in modules)


def lesson_of(key: str) -> str:
    """Return the part of a key that names its lesson.

    >>> lesson_of("wait.1"), lesson_of("mine:votes.1")
    ('wait', 'mine:votes')
    """
    return key.partition(".")[0]


def folders() -> list[Path]:
    """The folders of the courses' packages."""
    return [Path(sys.modules[package].__file__ or "").parent for package in installed()]
