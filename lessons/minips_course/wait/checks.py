"""The exercises of "Wait, or don't"."""

from typing import Any

import numpy as np

from minips.lab.course.exercises import asks, case, equals, refuse_if
from minips.stage import Array
from minips.testing.base import same_bits
from minips_course.own_server import check_bound


@asks(
    "wait.2",
    "A worker whose push is not answered cannot pull. So which pushes must stay unanswered, and until when?",
    "Each push moves a clock, and may move the slowest one. Then workers that pushed earlier may be free, too: "
    "remember the workers that wait, and check all of them after each push.",
    "Create an empty collection of waiting workers in __init__. handle changes it twice: it adds the sender, and then "
    "it removes the workers that the clocks now set free. Which workers get an answer?",
)
def own_bound(server: Any, rng: np.random.Generator) -> str:
    """Keep SSP's bound in your server: answer a push once its worker is at most `staleness` clocks ahead."""
    lacks = not isinstance(server, type) or not hasattr(server, "handle") or not hasattr(server, "staleness")
    refuse_if(lacks, f"Expected your class Server with handle and staleness, got {server!r}.")
    check_bound(server, rng)
    return "Each push was answered once, at the right time: random orders, 1 to 12 workers, staleness 0 to 39."


@asks(
    "wait.3",
    "Fill a table, clock by clock, with the time at which each worker has completed each clock.",
    "Before a worker starts clock c, it must have completed one clock, and the slowest worker another. "
    "may_pull of SSP says which clock the slowest must have completed.",
    "For each c a worker starts at the later of two times. While c is small, only the first of the two matters.",
)
def finish_time(function: Any, rng: np.random.Generator) -> str:
    """Make finish_time, a function of times and staleness, right for SSP."""
    refuse_if(not callable(function), f"Expected the function finish_time, got {function!r}.")
    for turn in range(30):
        alone, long = rng.exponential(size=(1 + turn, 1)), rng.exponential(size=(1 + turn, 1 + turn % 7))
        drawn = [(0, long), (0, alone), (2, alone), (turn + 2, long)]
        for staleness in (1, int(rng.integers(2, 4)), int(rng.integers(4, 9))):
            drawn.append((staleness, _waits(staleness, workers=2 + turn % 6, rng=rng)))
        for staleness, times in drawn:
            times = np.round(times, 2)
            before = times.copy()
            with case(f"For staleness={staleness} and times={before.tolist()}"):
                equals(function(times, staleness), _ssp_seconds(before, staleness))
                refuse_if(not same_bits(times, before), "it changed the array times.")
    return "Right for 210 random cases, from BSP (staleness 0) to no waiting at all."


def _waits(staleness: int, workers: int, rng: np.random.Generator) -> Array:
    """Return times with slow turns, in which SSP's end is neither that of BSP nor that of workers that never wait."""
    clocks = staleness + int(rng.integers(2, 9))
    while True:
        times = rng.exponential(size=(clocks, workers)) * np.where(rng.random((clocks, workers)) < 0.2, 8, 1)
        if times.sum(axis=0).max() < _ssp_seconds(times, staleness) < _ssp_seconds(times, 0):
            return times


def _ssp_seconds(times: Array, staleness: int) -> float:
    """Return the last worker's end. Before each clock a worker waits until it is at most ``staleness`` clocks ahead."""
    clocks, workers = times.shape
    ends = [[0.0] * workers]
    for clock in range(clocks):
        gate = max(ends[max(clock - staleness, 0)])
        ends.append([max(ends[-1][worker], gate) + float(times[clock, worker]) for worker in range(workers)])
    return max(ends[-1])
