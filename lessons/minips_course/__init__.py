"""The course that comes with minips: a folder for each lesson, and what several lessons share.

A lesson's ``questions`` are what it asks and says, its ``checks`` the exercises, its ``pictures`` what it draws; the
other modules are what its notebook imports besides. ``cases`` are for the tests, and in no wheel.
"""

from pathlib import Path

from minips.lab.course.courses import Course

LESSONS = (
    "train",
    "split",
    "batch",
    "server",
    "lecture",
    "wire",
    "stranger",
    "squeeze",
    "bits",
    "rounding",
    "remember",
    "spend",
    "move",
    "hide",
    "wait",
    "stale",
    "trust",
    "cost",
    "pays",
    "allreduce",
    "ddp",
)
"""The words of the lessons, in their order."""

SECOND_EDITION = {
    "00": "train",
    "01": "split",
    "02": "batch",
    "03": "server",
    "04": "lecture",
    "05": "wire",
    "06": "stranger",
    "07": "squeeze",
    "08": "bits",
    "09": "rounding",
    "10": "remember",
    "11": "spend",
    "12": "move",
    "13": "hide",
    "14": "wait",
    "15": "stale",
    "16": "trust",
    "17": "cost",
    "18": "pays",
    "19": "allreduce",
    "20": "ddp",
}
"""The word of each lesson by its number in the second edition, whose keys and modules had that number."""

_OLD, _NEW = "minips.lab.course", __name__
MOVED = {
    **{
        f"{_OLD}.lesson_{number}": (f"{_NEW}.{word}.questions", f"{_NEW}.{word}.checks")
        for number, word in SECOND_EDITION.items()
    },
    **{f"{_OLD}.pictures_{number}": (f"{_NEW}.{word}.pictures",) for number, word in SECOND_EDITION.items()},
    f"{_OLD}.ddp_20": (f"{_NEW}.ddp.ranks",),
    f"{_OLD}.exchanges_19": (f"{_NEW}.allreduce.exchanges",),
    f"{_OLD}.launch_04": (f"{_NEW}.lecture.launch",),
    f"{_OLD}.programs_04": (f"{_NEW}.lecture.programs",),
    f"{_OLD}.queues_12": (f"{_NEW}.move.queues",),
    f"{_OLD}.race_04": (f"{_NEW}.lecture.race",),
    f"{_OLD}.waiting_14": (f"{_NEW}.wait.waiting",),
    "minips.lab.measure.crowd": (f"{_NEW}.move.crowd",),
    "minips.lab.measure.trips": (f"{_NEW}.move.trips", "minips.lab.measure.pairs"),
}
"""By the name of a module as a learner's old copy imports it: the modules that have what it had."""

_INSTALLED = Path(__file__).with_name("notebooks")
_FOLDER = _INSTALLED if _INSTALLED.is_dir() else Path(__file__).parents[1]
course = Course("minips", "A parameter server, taken apart", _FOLDER, LESSONS)
"""Its notebooks lie in the package where it is installed, and beside it in a checkout."""
