"""The course that comes with minips: a folder for each lesson, and modules that several lessons share.

In a lesson's folder, ``questions`` contains its questions and texts, ``checks`` its exercises, and ``pictures`` its
plots. Its notebook imports the other modules, except ``cases``: only the tests use them, and no wheel contains them.
"""

from pathlib import Path

from minips.lab.course.courses import Course

PARTS = {
    "I. A parameter server": ("train", "split", "batch", "server", "lecture"),
    "II. Fewer bytes": ("wire", "stranger", "squeeze", "bits", "rounding", "remember", "fails", "spend"),
    "III. Waiting and trust": ("move", "hide", "wait", "stale", "trust"),
    "IV. Cost": ("cost", "pays", "allreduce", "ddp"),
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

_INSTALLED = Path(__file__).with_name("notebooks")
_FOLDER = _INSTALLED if _INSTALLED.is_dir() else Path(__file__).parents[1]
course = Course("minips", "A parameter server, taken apart", _FOLDER, LESSONS, SECOND_EDITION, PARTS, WAYS)
"""The course of minips. An installed package contains its notebooks; in a checkout they are in the folder above."""
