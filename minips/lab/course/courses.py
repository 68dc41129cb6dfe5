"""The courses that are installed. A package brings one by an entry point of the group ``minips.course``, which names a
`Course`:

    [project.entry-points."minips.course"]
    algebra = "algebra_course:course"

Of each lesson the modules ``questions`` and ``checks`` are imported, where the package has them:
``algebra_course.matrices.questions`` for the word "matrices". They add what is theirs to the tables of
`minips.lab.course.questions` and `minips.lab.course.exercises`. ``MOVED`` in the package's module may lead old names of
modules to new ones, see `minips.lab.moved`.
"""

import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path

from minips.words import message_of

GROUP = "minips.course"
FIRST = "minips"
"""The name of the course that is taken where there are several."""


@dataclass(frozen=True)
class Course:
    """A course: its name, its title, the folder of its notebooks, and the words of its lessons in their order.

    A word is the name of the lesson's package, beside the module that the entry point names. The lesson's keys begin
    with it, and its notebook with its place in two digits: ``14_wait_or_dont.ipynb`` is that of ``lessons[14]``.
    """

    name: str
    title: str
    notebooks: Path
    lessons: tuple[str, ...]
    numbered: Mapping[str, str] = field(default_factory=dict)
    """The words of lessons by the file names of an earlier edition, whose keys had the notebook's number for a word:
    what it called 14.1 is found, and what a learner has done in it counts.
    """


@cache
def installed() -> dict[str, Course]:
    """The courses by their packages, once their lessons are imported. A warning tells of one that fails to load;
    ImportError where there is none, or where none loads.
    """
    found, failed = {}, []
    for entry in entry_points(group=GROUP):
        try:
            found[entry.module] = _loaded(entry)
        except Exception as error:
            mend = f"Mend its package, {entry.module}, or uninstall it."
            failed.append(
                f"The course {entry.name!r} cannot be loaded. {mend} {type(error).__name__}: {message_of(error)}"
            )
    if not found:
        nothing = "There is no course: none is installed. Install minips again, which brings one."
        raise ImportError(" ".join(failed) or nothing)
    for words in failed:
        warnings.warn(words, stacklevel=2)
    return found


def _loaded(entry: EntryPoint) -> Course:
    course = entry.load()
    if not isinstance(course, Course):
        raise TypeError(f"{entry.value} is {course!r}. Expected a minips.lab.Course.")
    for word in course.lessons:
        package = f"{entry.module}.{word}"
        for part in ("questions", "checks"):
            if find_spec(f"{package}.{part}"):
                import_module(f"{package}.{part}")
    return course


def chosen() -> Course:
    """The course that is named `FIRST`, or else the first one. ImportError as in `installed`."""
    found = [*installed().values()]
    return next((course for course in found if course.name == FIRST), found[0])


def numbers() -> dict[int, str]:
    """The words of lessons by their numbers in an earlier edition."""
    return {int(name[:2]): word for course in installed().values() for name, word in course.numbered.items()}


def lesson_of(key: str) -> str:
    """The word of the lesson that a key belongs to.

    >>> lesson_of("wait.1")
    'wait'
    """
    return key.partition(".")[0]


def folders() -> list[Path]:
    """The folders of the courses' packages."""
    return [Path(sys.modules[package].__file__ or "").parent for package in installed()]
