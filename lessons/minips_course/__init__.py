"""The course that comes with minips: a folder for each lesson, and modules that several lessons share.

In a lesson's folder, ``questions`` contains its questions and texts, ``checks`` its exercises, and ``pictures`` its
plots. Its notebook imports the other modules, except ``cases``: only the tests use them, and no wheel contains them.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from minips.lab.course.courses import Course

PARTS = {
    "I. A parameter server": ("train", "split", "batch", "server", "lecture"),
    "II. Fewer bytes": ("wire", "stranger", "squeeze", "bits", "rounding", "remember", "fails", "spend"),
    "III. Waiting and trust": ("move", "hide", "survive", "wait", "stale", "trust"),
    "IV. Cost": ("cost", "pays", "allreduce", "network", "ddp"),
    "V. Further out": ("local", "links", "plug", "race"),
}
"""Maps the title of each part to its lessons."""

LESSONS = tuple(word for part in PARTS.values() for word in part)
"""The name of each lesson, in the order of the notebooks."""

WAYS = {
    "an afternoon": ("train", "split", "server", "bits", "move", "wait", "cost"),
    "a week": LESSONS[: LESSONS.index("cost")],
    "all of it": LESSONS,
}
"""Maps the name of each way through the course to its lessons."""

SECOND_EDITION = {
    "00_train_in_a_minute.ipynb": "train",
    "01_split_a_gradient.ipynb": "split",
    "02_a_small_batch_is_an_estimate.ipynb": "batch",
    "03_a_server_in_forty_lines.ipynb": "server",
    "04_a_lectures_server.ipynb": "lecture",
    "05_arrays_on_a_wire.ipynb": "wire",
    "06_a_strangers_bytes.ipynb": "stranger",
    "07_squeeze_bytes.ipynb": "squeeze",
    "08_send_fewer_bits.ipynb": "bits",
    "09_round_at_random.ipynb": "rounding",
    "10_remember_what_was_not_sent.ipynb": "remember",
    "11_spend_bits_where_they_matter.ipynb": "spend",
    "12_move_frames.ipynb": "move",
    "13_hide_and_survive.ipynb": "hide",
    "14_wait_or_dont.ipynb": "wait",
    "15_old_gradients.ipynb": "stale",
    "16_trust_nobody.ipynb": "trust",
    "17_predict_the_cost.ipynb": "cost",
    "18_where_compression_pays.ipynb": "pays",
    "19_do_without_a_server.ipynb": "allreduce",
    "20_a_deep_net_under_ddp.ipynb": "ddp",
}
"""Maps each notebook of the second edition to its lesson's name. That edition's keys and modules had numbers."""

_OLD, _NEW = "minips.lab.course", __name__
MOVED = {
    **{
        f"{_OLD}.lesson_{notebook[:2]}": (f"{_NEW}.{word}.questions", f"{_NEW}.{word}.checks")
        for notebook, word in SECOND_EDITION.items()
    },
    **{f"{_OLD}.pictures_{notebook[:2]}": (f"{_NEW}.{word}.pictures",) for notebook, word in SECOND_EDITION.items()},
    f"{_OLD}.ddp_20": (f"{_NEW}.ddp.ranks",),
    f"{_OLD}.exchanges_19": (f"{_NEW}.allreduce.exchanges",),
    f"{_OLD}.launch_04": (f"{_NEW}.lecture.launch",),
    f"{_OLD}.programs_04": (f"{_NEW}.lecture.programs",),
    f"{_OLD}.queues_12": (f"{_NEW}.move.queues",),
    f"{_OLD}.waiting_14": (f"{_NEW}.wait.waiting",),
    "minips.lab.measure.crowd": (f"{_NEW}.move.crowd",),
    "minips.lab.measure.trips": (f"{_NEW}.move.trips", "minips.lab.measure.pairs"),
}
"""Maps each module name that a learner's old copy may import to the modules that now contain its contents."""

GONE = {
    "allreduce.exchanges": ("pulls_s", "tree_in_pieces_s"),
    "allreduce.pictures": ("draw_costs", "draw_over_workers", "draw_racks", "draw_steps"),
    "batch.pictures": ("draw_steps",),
    "bits": ("pictures",),
    "ddp.pictures": ("draw_hooks",),
    "ddp.ranks": ("Group", "SlowLink", "flat", "ladder", "learn", "naive", "overlapped", "with_codec"),
    "hide.pictures": ("draw_answered", "draw_boxes", "draw_pool", "draw_steps", "table"),
    "cost.pictures": ("draw_calibration", "draw_comparison", "draw_fits", "draw_ratios"),
    "lecture": ("race",),
    "lecture.programs": ("Calls", "NotTheOwnerError", "ParameterServer", "RACE", "addresses", "references"),
    "remember.pictures": ("draw_errors", "draw_paths", "draw_walks"),
    "server": ("pictures",),
    "squeeze.pictures": ("draw_arrivals", "draw_entropies", "draw_steps"),
    "stale.pictures": ("draw_borders", "draw_shares", "draw_swings"),
    "trust.pictures": ("draw_one_step", "draw_reach"),
    "wait.pictures": ("draw_lags", "draw_timelines"),
    "wire.pictures": ("draw_pieces",),
}
"""Maps modules of lessons to the names that only the second edition had, and that a learner's old copy may use."""


class Gone:
    """Stands for something that a lesson no longer has: each call of it, or of a part of it, shows one line."""

    def __init__(self, lesson: str) -> None:
        self._lesson = lesson

    def __getattr__(self, name: str) -> "Gone":
        if name.startswith("_"):
            raise AttributeError(name)
        return self

    def __call__(self, *given: Any, **named: Any) -> "Gone":
        today = course.paths()[self._lesson].name
        print(f"This cell belongs to an earlier edition of the lesson, which is now {today}. To get it: minips lab")
        return self

    def _ipython_display_(self) -> None:
        """Show nothing."""


def gone(module: str) -> Callable[[str], Gone]:
    """Return the ``__getattr__`` of a lesson's module, which knows the names that only an earlier edition had."""
    part = module.removeprefix(f"{__name__}.")

    def find(name: str) -> Gone:
        if name in GONE[part]:
            return Gone(part.partition(".")[0])
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return find


_INSTALLED = Path(__file__).with_name("notebooks")
_FOLDER = _INSTALLED if _INSTALLED.is_dir() else Path(__file__).parents[1]
course = Course("minips", "A parameter server, taken apart", _FOLDER, LESSONS, SECOND_EDITION, PARTS, WAYS)
"""The course of minips. An installed package contains its notebooks; in a checkout they are in the folder above."""
