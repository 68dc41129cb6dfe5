"""The exercises of "Pull the plug"."""

from collections.abc import Callable
from typing import Any

import numpy as np

from minips.lab.course.exercises import asks, case, refuse_if
from minips_course.own_server import check_once
from minips_course.plug import drill, histories


@asks(
    "plug.1",
    "For each worker, the server needs the clock of the last push that it has counted. Where must that be kept, so "
    "that a server that starts again has it?",
    "A push with that clock has been counted: do not call handle. But was it answered? Remember, too, which workers' "
    "answers are still due. Other workers' pushes can bring them.",
    "Write __init__ with super().__init__(…), a list of last clocks, and a set of workers. deliver has three cases: a "
    "pull, a new push, a repeated one. At its end, take everybody that gets an answer out of the set.",
    beside=True,
)
def count_once(server: Any, rng: np.random.Generator) -> str:
    """Make deliver count each push once, answer a repeated push as it should, and survive the server's death."""
    lacks = not isinstance(server, type) or not callable(getattr(server, "deliver", None))
    refuse_if(lacks, f"Expected your class Server with the method deliver, got {server!r}.")
    check_once(server, rng)
    for seed in rng.integers(1_000_000, size=25).tolist():
        found = drill.run(server, seed)
        refuse_if(found.wrong, f"Under the faults of {found}.")
    return "Each push counted once, also when the server was killed, and repeated pushes got their answers when due."


@asks(
    "plug.2",
    "Go through the events in order, and remember which pushes are in the journal so far.",
    "Two events can break the promise: one that keeps a push, and one that acknowledges it. A push may be sent, and "
    "acknowledged, as often as it likes.",
    "A push is a pair of worker and clock. Return False at the first event that breaks the promise; return True after "
    "the last one.",
)
def invariant(function: Any, rng: np.random.Generator) -> str:
    """Write the invariant: an acknowledged push is in the journal, and no push is there twice."""
    refuse_if(not callable(function), f"Expected the function holds(history), got {function!r}.")
    for seed in rng.integers(1_000_000, size=25).tolist():
        right = histories.right(seed)
        _says(function, True, histories.renamed(right, rng), "A right history:")
        cut = right[: int(rng.integers(len(right)))]
        _says(function, True, cut, "A right history that ends early:")
    for seed, bug in zip(rng.integers(1_000_000, size=50).tolist(), histories.BUGS * 10, strict=True):
        with_bug = bug(histories.right(seed), rng)
        _says(function, False, histories.renamed(with_bug, rng), f"A history with a bug ({bug.__doc__}):")
    _says(function, True, [], "A history without events:")
    return "It found each planted bug, and blamed no right history."


def _says(function: Callable[..., Any], wanted: bool, history: histories.History, what: str) -> None:
    given = [*history]
    with case(what):
        got = function(given)
        refuse_if(not isinstance(got, bool | np.bool_), f"it returned {got!r}, expected True or False.")
        refuse_if(got != wanted, f"it returned {got}, expected {wanted}.")
        refuse_if(given != history, "it changed the history.")
