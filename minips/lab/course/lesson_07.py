"""Lesson 07: wait, or don't."""

import dataclasses
from typing import Any

import numpy as np

import minips as ps
from minips.lab.course.exercises import asks, case, conforms, drawn_seed, equals, number, refuse_if
from minips.lab.course.questions import Option, question, sentence
from minips.stage import Array

question(
    "07.1",
    "Compared with BSP, two of the other rules save more than half of the time. Which one saves hardly any?",
    Option("BSP with one backup worker", lambda TODO: False, "TODO"),
    Option("SSP, two clocks ahead", lambda TODO: False, "TODO"),
    Option(
        "ASP",
        lambda TODO: False,
        "The fast workers use up their lead of two clocks in the first steps. From then on each of their "
        "steps waits for a step of worker 3, as under BSP.",
    ),
    expected="ASP",
    otherwise="TODO",
    telling=[],
)

question(
    "07.2",
    "Four workers, exponential times. How long does a BSP round take on average, counted in mean times of a step?",
    Option("about 1 mean time", lambda TODO: False, "TODO"),
    Option("about 2 mean times", lambda TODO: False, "TODO"),
    Option(
        "about 4 mean times",
        lambda TODO: False,
        "A round ends with the slowest of its four steps. A single long step is enough to make all wait.",
    ),
    expected="about 4 mean times",
    otherwise="TODO",
    telling=[],
)

question(
    "07.3",
    "BSP with one backup, worker 3 four times slower. How many of the held-out 9s does the model read correctly?",
    Option("nearly all of them", lambda TODO: False, "TODO"),
    Option("about half of them", lambda TODO: False, "TODO"),
    Option(
        "none of them",
        lambda TODO: False,
        "Worker 3 is late in every round, so each of its pushes is dropped. It holds all the 9s: the model "
        "never sees one. Under ASP its pushes count, but there are few of them.",
    ),
    expected="none of them",
    otherwise="TODO",
    telling=[],
)

question(
    "07.4",
    "Each gradient is 3 updates old. Up to which ηλ is descent stable?",
    Option("2, as before", lambda TODO: False, "TODO"),
    Option("about 1", lambda TODO: False, "TODO"),
    Option(
        "less than 0.5",
        lambda TODO: False,
        "An old gradient still points downhill where the parameters were three updates ago, so the descent "
        "turns back too late. At 0.40 the swings die out; at 0.50 each is larger than the one before.",
    ),
    expected="less than 0.5",
    otherwise="TODO",
    telling=[],
)

question(
    "07.5",
    "On which axis will the curves of BSP, SSP and ASP lie clearly apart?",
    Option("against time only", lambda TODO: False, "TODO"),
    Option("against bytes only", lambda TODO: False, "TODO"),
    Option(
        "against both",
        lambda TODO: False,
        "At this learning rate a gradient that is a few versions old helps about as much as a fresh one. So "
        "the rules differ in how many gradients come in a second, and hardly in what a gradient, or a byte, "
        "is worth.",
    ),
    expected="against both",
    otherwise="TODO",
    telling=[],
)

sentence(
    "07.1",
    "BSP's time is 100 %. One backup took {backup:.0%} of it, SSP {ssp:.0%}, ASP {asp:.0%}.",
    expect="backup < 0.5 and asp < 0.5 and ssp > 0.8",
    timed=True,
)

sentence(
    "07.2",
    "Of its long steps, worker 3 began {bsp} under BSP, {backup} with one backup, {ssp} under SSP, {asp} under ASP.",
    expect="backup <= 18 and asp <= 18",
    timed=True,
)

sentence(
    "07.3",
    "On average, one step takes {one_step:.2f} mean times, and the slowest of four {four_steps:.2f}.",
    expect="abs(one_step - 1) < 0.02 and abs(four_steps - (1 + 1 / 2 + 1 / 3 + 1 / 4)) < 0.03",
)

sentence(
    "07.4",
    "64 gradients of 64 workers: {bsp:.2f} means under BSP, {backup:.2f} with one backup, {asp:.2f} under ASP.",
    expect="asp < backup < bsp",
)

sentence(
    "07.5",
    "Virtual time of 4 gradients: BSP {bsp:.2f} means, one backup {backup:.2f}, SSP {ssp:.2f}, ASP {asp:.2f}.",
    expect="asp < ssp < bsp and asp < 0.6 * bsp",
)

sentence(
    "07.6",
    "Measured: BSP {bsp:.2f} means, one backup {backup:.2f}, SSP {ssp:.2f}, ASP {asp:.2f}.",
    expect="asp < ssp < bsp",
    timed=True,
)

sentence(
    "07.7",
    "Time of 4 gradients with one backup: {abandon:.2f} means if late workers abandon their step (the "
    "formula says {formula:.2f}), {finish:.2f} if they finish it.",
    expect="abs(abandon / formula - 1) < 0.05 and 1.15 < finish / formula < 1.35",
)

sentence(
    "07.8",
    "Mean staleness: BSP {bsp:.1f} versions, SSP {ssp:.1f}, ASP {asp:.1f}. The oldest gradient: "
    "{ssp_most} versions under SSP, {asp_most} under ASP.",
    expect="2 < asp < 3.5",
    timed=True,
)

sentence("07.9", "{name}: {mean:.0%} of the 8s and 9s are read correctly (five seeds, from {low:.0%} to {high:.0%}).")

sentence(
    "07.10",
    "And with {workers} workers: up to {asp:.2f} under ASP, up to {overlap:.2f} with overlap.",
    expect="1.5 < asp < 1.6 and 0.75 < overlap < 0.8",
)

sentence(
    "07.11",
    "It diverged: {grew}. It converged: {fell}. The gradients of ASP with overlap were {age:.0f} versions"
    " old (median).",
    expect="count == (2, 4) and abs(age - 7) <= 1",
    timed=True,
)

sentence("07.12", "{name}: {time:.1f} ± {d_time:.1f} mean times, {bytes:.3f} ± {d_bytes:.3f} MB.")

sentence(
    "07.13",
    "Of BSP, SSP and ASP, the one that needs most takes {in_time:.2f} times as long as the one that needs"
    " least, and {in_bytes:.2f} times the bytes.",
    expect="in_time > 1.5 and in_bytes < 1.25",
)

sentence(
    "07.14",
    "BSP's mean times for each batch: {one:.1f} with accumulate=1, {four:.1f} with 4, {sixteen:.1f} with 16.",
    expect="four < 0.8 * one and sixteen < 0.65 * one",
)


@asks(
    "07.1",
    "Which meeting has a worker at this clock come to last? With every = 4 it is 8 for the clocks 8, 9, 10 and 11.",
    "clock // self.every * self.every is the last meeting at or before clock. Who must have come to it?",
    "One comparison: the slowest clock against the last meeting.",
)
def meet(rule: Any, rng: np.random.Generator) -> str:
    """Relax may_pull: the workers run free, and meet at every multiple of `every`."""
    conforms(rule, ps.Consistency, "Meet()")
    names = [field.name for field in dataclasses.fields(rule)]
    refuse_if(names != ["every"], f"Expected the field every; got {rule!r}.")
    refuse_if(rule.quorum(4) is not None, f"quorum(4) is {rule.quorum(4)}. Leave it at None: there are no rounds.")
    for every in (1, 2, *map(int, rng.integers(3, 12, size=3))):
        mine = dataclasses.replace(rule, every=every)
        for clock in map(int, [*range(2 * every + 1), *rng.integers(0, 200, size=20)]):
            for slowest in range(max(clock - 2 * every - 1, 0), clock + 2):
                may, meeting = mine.may_pull(clock, slowest), clock - clock % every
                with case(f"With every={every}, may_pull(clock={clock}, slowest={slowest}) is {may}."):
                    refuse_if(may and slowest < meeting, f"The slowest has not come to the meeting at {meeting} yet.")
                    refuse_if(not may and slowest >= meeting, f"Both have been at the meeting at {meeting}.")
    slow, every = int(rng.integers(3)), int(rng.integers(3, 6))
    mine, delays = dataclasses.replace(rule, every=every), ps.Delays(seconds=0.004, slow={slow: 4.0})
    config = ps.Config(workers=3, steps=3 * every, consistency=mine, delays=delays, seed=drawn_seed(rng))
    run = ps.train(ps.LinearRegression(*ps.datasets.diabetes()), config, engine=ps.Threads())
    for clock, slowest in ((grant.clock, grant.slowest) for grant in run.grants):
        with case(f"In a run with every={every}"):
            early = slowest < clock - clock % every
            refuse_if(early, f"a worker at clock {clock} went on, the slowest at {slowest}.")
    lead = max(grant.clock - grant.slowest for grant in run.grants)
    return f"Right for random clocks. In a run with every={every} the largest lead was {lead} clocks."


@asks(
    "07.2",
    "Keep a table of when each worker has completed each clock, and fill it clock by clock.",
    "A worker starts clock c when it has done its own clock c − 1 and everybody has completed c − staleness clocks.",
    "For each c, one maximum of two things, the second only from c = staleness + 1 on; then add the times of "
    "this clock.",
)
def finish_time(function: Any, rng: np.random.Generator) -> str:
    """Make finish_time, of times and staleness, answer for SSP."""
    refuse_if(not callable(function), f"Expected the function finish_time, got {function!r}.")
    for turn in range(30):
        clocks, workers = int(rng.integers(1, 9)), int(rng.integers(1, 6))
        times = rng.integers(1, 10, size=(clocks, workers)).astype(float)
        if turn % 3 == 0:
            times[:, rng.integers(workers)] *= 5
        for staleness in (0, int(rng.integers(1, 4)), clocks):
            with case(f"For staleness={staleness} and times={times.astype(int).tolist()}"):
                equals(function(times.copy(), staleness), _ssp_seconds(times, staleness))
    return "Right for 90 random cases, from BSP (staleness 0) to no waiting at all."


def _ssp_seconds(times: Array, staleness: int) -> float:
    """When the last worker is done: it waits, before each clock, for the slowest to be ``staleness`` clocks behind."""
    clocks, workers = times.shape
    ends = [[0.0] * workers]
    for clock in range(clocks):
        gate = max(ends[max(clock - staleness, 0)])
        ends.append([max(ends[-1][worker], gate) + float(times[clock, worker]) for worker in range(workers)])
    return max(ends[-1])


@asks(
    "07.3",
    "How old is a gradient among n equally fast workers: without overlap, and with it? The text above says so.",
    "The theory bounds lr/workers × curvature, for a push moves the parameters by lr/workers.",
    "Two cases for the age; then ps.cost.asynchronous_lr_limit(age, curvature), which bounds what one push may "
    "move. How much of lr is that?",
)
def safe_lr(function: Any, rng: np.random.Generator) -> str:
    """Make safe_lr, of curvature, workers and overlap, stable for old gradients, and not timid."""
    refuse_if(not callable(function), f"Expected the function safe_lr, got {function!r}.")
    for _ in range(20):
        curvature, workers = float(rng.uniform(0.05, 50)), int(rng.integers(1, 17))
        for overlap in (False, True):
            age = 2 * workers - 1 if overlap else workers - 1
            with case(f"safe_lr({curvature:.3g}, workers={workers}, overlap={overlap})"):
                lr = number(function(curvature, workers, overlap))
                refuse_if(not 0 < lr < np.inf, f"is {lr}, not a learning rate above 0.")
                growth, above = (_growth(factor * lr / workers * curvature, age) for factor in (1, 1.25))
                words = f"is {lr:.4g}. The gradients are {age} versions old"
                border = "this is the border itself, where swings never end: keep a margin, such as a factor of 0.9"
                refuse_if(1 <= growth < 1.001, f"{words}, and {border}.")
                refuse_if(growth >= 1, f"{words}, and the swings grow by a factor of {growth:.3f} with each push.")
                refuse_if(above < 1, f"{words}, and 1.25 times as much would still be stable: too timid.")
    return "Stable for 40 random cases, and within 1.25 of the border."


def _growth(push: float, age: int) -> float:
    """The factor by which the slowest swing of x ← x − push · (x, ``age`` updates ago) grows in an update."""
    polynomial = np.zeros(age + 2)  # z^(age+1) − z^age + push
    polynomial[0], polynomial[1] = 1, -1
    polynomial[-1] += push
    return float(np.abs(np.roots(polynomial)).max())
