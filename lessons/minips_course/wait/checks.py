"""The exercises of "Wait, or don't"."""

import dataclasses
from typing import Any

import numpy as np

import minips as ps
from minips.lab.course.exercises import asks, case, conforms, drawn_seed, equals, refuse_if
from minips.stage import Array
from minips.testing.base import same_bits
from minips_course.own_server import check_bound


@asks(
    "wait.1",
    "At which clock was the last meeting of a worker at this clock? With every = 4 it is 8 for clocks 8, 9, 10 and 11.",
    "In may_pull, clock // self.every numbers the meetings from 0. When was the last one, and who must have come?",
    "One comparison is enough: compare the slowest clock with the clock of the last meeting.",
)
def meet(rule: Any, rng: np.random.Generator) -> str:
    """Relax may_pull: let the workers run freely, but meet at every multiple of `every`."""
    conforms(rule, ps.Consistency, "Meet()")
    names = [field.name for field in dataclasses.fields(rule)]
    refuse_if(names != ["every"], f"Expected the field every; got {rule!r}.")
    for workers in (4, 1, 2, *map(int, rng.integers(3, 40, size=3)), 1000):
        quorum = rule.quorum(workers)
        refuse_if(quorum is not None, f"quorum({workers}) is {quorum}. Leave it at None: there are no rounds.")
    for every in (4, 1, 2, 3, *map(int, rng.integers(5, 12, size=2)), int(rng.integers(12, 100)), 1000):
        mine = dataclasses.replace(rule, every=every)
        late = rng.integers((10 ** rng.uniform(2, 7, size=20)).astype(int)) // every * every
        late += rng.integers(every, size=20)
        for clock in map(int, [*range(min(2 * every, 24) + 1), *late, 10 * every, 1000 * every]):
            meeting = clock - clock % every
            near = {*range(meeting - 3, meeting + 3), *range(clock - 3, clock + 2), clock - every, meeting - every}
            for slowest in sorted(max(one, 0) for one in near | {0, meeting // 2}):
                may = mine.may_pull(clock, slowest)
                with case(f"With every={every}, may_pull(clock={clock}, slowest={slowest}) is {may}."):
                    refuse_if(may and slowest < meeting, f"The slowest has not reached the meeting at {meeting} yet.")
                    refuse_if(not may and slowest >= meeting, f"Both have been at the meeting at {meeting}.")
    for every in range(1, 130):
        mine, clock = dataclasses.replace(rule, every=every), every * int(rng.integers(1, 4))
        early, there = mine.may_pull(clock, clock - 1), mine.may_pull(clock, clock)
        refuse_if(early or not there, f"With every={every}, there is a meeting at clock {clock}.")
    slow, every = int(rng.integers(3)), int(rng.integers(3, 6))
    mine, delays = dataclasses.replace(rule, every=every), ps.Delays(seconds=0.004, slow={slow: 4.0})
    config = ps.Config(workers=3, steps=3 * every, consistency=mine, delays=delays, seed=drawn_seed(rng))
    run = ps.train(ps.LinearRegression(*ps.datasets.diabetes()), config, engine=ps.Threads())
    for clock, slowest in ((grant.clock, grant.slowest) for grant in run.grants):
        with case(f"In a run with every={every}"):
            early = slowest < clock - clock % every
            refuse_if(early, f"a worker at clock {clock} went on while the slowest was at {slowest}.")
    lead = max(grant.clock - grant.slowest for grant in run.grants)
    return f"Right for random clocks. In a run with every={every} the largest lead was {lead} clocks."


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
