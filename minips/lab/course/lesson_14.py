"""Lesson 14: wait, or don't."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

import minips as ps
from minips.lab.course.exercises import asks, case, conforms, drawn_seed, equals, number, refuse_if
from minips.lab.course.questions import (
    Expected,
    Option,
    card,
    estimate,
    question,
    sentence,
    timed_question,
    timed_sentence,
)
from minips.stage import Array


def _longest(rule: str) -> Callable[..., bool]:
    """True where this rule took longer than each of the others."""
    return lambda **took: all(took[rule] > time for name, time in took.items() if name != rule)


timed_question(
    "14.1",
    "Worker 3 is four times slower than the others. Which of these three rules takes longest for the same pushes?",
    Option(
        "BSP with one backup worker",
        _longest("backup"),
        "A round needs three pushes, and the three fast workers did not bring them as fast as their steps are short.",
    ),
    Expected(
        "SSP, two clocks ahead",
        _longest("ssp"),
        "The fast workers use up their lead of two clocks in the first steps. From then on each of their "
        "steps waits for a step of worker 3, as under BSP.",
    ),
    Option(
        "ASP, which never waits",
        _longest("asp"),
        "Nobody waits under ASP, so computing and messages took that time: this machine was busy with something else.",
    ),
    otherwise="Two of them took equally long, or a time is missing.",
)

question(
    "14.2",
    "Four workers, exponential times. How long does a BSP round take on average, counted in mean times of a step?",
    Option(
        "about 1 mean time",
        lambda ratio: 0.75 < ratio < 1.5,
        "Long and short steps evened out within a round: the slowest of four took hardly longer than the mean.",
    ),
    Expected(
        "about 2 mean times",
        lambda ratio: 1.5 < ratio < 3,
        "A round ends with the slowest of its four steps. A single long step is enough to make all wait.",
    ),
    Option(
        "about 4 mean times",
        lambda ratio: 3 < ratio < 6,
        "The slowest of four took as long as four steps one after the other.",
    ),
    otherwise="The slowest of four took less than one step does on average, or more than six of them.",
)

question(
    "14.3",
    "BSP with one backup, worker 3 four times slower, digits sorted. How many of the held-out 9s does the model read "
    "correctly?",
    Option(
        "nearly all of them",
        lambda nines: nines >= 0.75,
        "Enough of worker 3's pushes came in time to be applied.",
    ),
    Option(
        "about half of them",
        lambda nines: 0.25 <= nines < 0.75,
        "Some of worker 3's pushes came in time: the model has seen 9s, but not many.",
    ),
    Expected(
        "none of them",
        lambda nines: nines < 0.05,
        "Worker 3 is late in every round, so each of its pushes is dropped. It holds all the 9s: the model never sees "
        "one.",
    ),
    otherwise="The model reads a few of the 9s: some of worker 3's pushes were not late.",
)

question(
    "14.4",
    "Each gradient is 3 updates old. Up to which ηλ is descent stable?",
    Option(
        "2, as with fresh ones",
        lambda fresh, old: old > 0.75 * fresh,
        "The age made no difference: the direction of three updates ago was as good as the newest.",
    ),
    Option(
        "about half of that",
        lambda fresh, old: 0.35 * fresh < old <= 0.75 * fresh,
        "The descent turns back too late, but it does turn back in time if the steps are half as long.",
    ),
    Expected(
        "less than a quarter of that",
        lambda fresh, old: 0 < old < 0.25 * fresh,
        "An old gradient still points downhill where the parameters were three updates ago, so the descent "
        "turns back too late. All the updates in between go too far as well.",
    ),
    otherwise="The border lies between a quarter and a third of that for fresh gradients, or at no rate did the loss "
    "fall.",
)

question(
    "14.5",
    "On which axis will the curves of BSP, SSP and ASP lie clearly apart?",
    Expected(
        "against time only",
        lambda in_time, in_bytes: in_time > 1.25 and in_bytes <= 1.25,
        "At this learning rate a gradient that is a few versions old helps about as much as a fresh one. So "
        "the rules differ in how many gradients come in a second, and hardly in what a gradient, or a byte, "
        "is worth.",
    ),
    Option(
        "against bytes only",
        lambda in_time, in_bytes: in_time <= 1.25 and in_bytes > 1.25,
        "Old gradients were worth less, so more of them had to be sent; and not waiting gained just as much time as "
        "that cost.",
    ),
    Option(
        "against both",
        lambda in_time, in_bytes: in_time > 1.25 and in_bytes > 1.25,
        "The rules differ in how many gradients come in a second, and in what each of them is worth.",
    ),
    otherwise="The curves lie close together on both axes: neither the time nor the bytes differ by a quarter.",
)

estimate(
    "14.6",
    "Let ASP run for as long as BSP took. How many of the held-out 8s and 9s, in percent, does its model read then?",
    "percent",
    expected=(60, 78),
    because="In the same seconds worker 3 makes about as many pushes under ASP as under BSP: most of what was missing "
    "was time. A part stays missing.",
    otherwise="The text goes on from most of them, and fewer than under BSP. Look at how many steps worker 3 began.",
)

timed_sentence(
    "14.1",
    "BSP's time is 100 %. In five repeats one backup took {backup[1]:.0%} of it (median; quartiles {backup[0]:.0%} and "
    "{backup[2]:.0%}), SSP {ssp[1]:.0%} ({ssp[0]:.0%}, {ssp[2]:.0%}), ASP {asp[1]:.0%} ({asp[0]:.0%}, {asp[2]:.0%}).",
    expect="backup[1] < 0.6 and asp[1] < 0.6 and 0.75 < ssp[1] < 1.1",
)

timed_sentence(
    "14.2",
    "In the run of the picture worker 3 started {bsp} steps under BSP, {backup} with one backup, {ssp} under SSP, "
    "{asp} under ASP. Then all {pushes} pushes were applied.",
    expect="bsp == pushes / 4 and ssp >= bsp - 4 and backup < 0.75 * bsp and asp < 0.75 * bsp",
)

sentence(
    "14.3",
    "On average, one step takes {one_step:.2f} mean times, and the slowest of four {four_steps:.2f}.",
    expect="abs(one_step - 1) < 0.02 and abs(four_steps - (1 + 1 / 2 + 1 / 3 + 1 / 4)) < 0.03",
)

sentence(
    "14.4",
    "64 gradients of 64 workers: {bsp:.2f} means under BSP, {backup:.2f} with one backup, {asp:.2f} under ASP. All "
    "markers are within {off:.1%} of the formulas.",
    expect="asp < backup < bsp and off < 0.03",
)

sentence(
    "14.5",
    "Virtual time of 4 gradients, five seeds: BSP {bsp:.2f} ± {d_bsp:.2f} means, one backup {backup:.2f} ± "
    "{d_backup:.2f}, SSP {ssp:.2f} ± {d_ssp:.2f}, ASP {asp:.2f} ± {d_asp:.2f}.",
    expect="asp + d_asp < bsp - d_bsp and asp < ssp < bsp and ssp - asp > 0.15",
)

timed_sentence(
    "14.6",
    "Measured, five seeds: BSP {bsp:.2f} ± {d_bsp:.2f} means, one backup {backup:.2f} ± {d_backup:.2f}, SSP {ssp:.2f} "
    "± {d_ssp:.2f}, ASP {asp:.2f} ± {d_asp:.2f}.",
    expect="asp < ssp < bsp",
)

sentence(
    "14.7",
    "One backup saves {formula:.0%} of BSP's time by the formula, {abandon:.0%} ± {d_abandon:.0%} if late workers "
    "abandon their step, {finish:.0%} ± {d_finish:.0%} if they finish it (five seeds, {rounds} steps of each worker).",
    expect="abs(abandon - formula) < 0.05 and 0.05 < finish - d_finish and finish + d_finish < formula / 2",
)

timed_sentence(
    "14.8",
    "Mean staleness: BSP {bsp:.1f} versions, SSP {ssp:.1f}, ASP {asp:.1f}. The oldest gradient: "
    "{ssp_most} versions under SSP, where {bound} is the bound, and {asp_most} under ASP.",
    expect="bsp == 0 and ssp_most <= bound and 2 < asp < 3.5",
)

sentence(
    "14.9",
    "{name}: {mean:.0%} of the 8s and 9s are read correctly (five seeds, from {low:.0%} to {high:.0%}). The run took "
    "{time:.0%} of BSP's time; worker 3 started {steps} steps, and {late} pushes were dropped.",
)

sentence(
    "14.10",
    "And with {workers} workers: up to {asp:.2f} under ASP, up to {overlap:.2f} with overlap.",
    expect="1.5 < asp < 1.6 and 0.75 < overlap < 0.8",
)

timed_sentence(
    "14.11",
    "It diverged: {grew}. It converged: {fell}. The gradients of ASP with overlap were {age:.0f} versions"
    " old (median).",
    expect="count == (2, 4) and abs(age - 7) <= 1",
)

sentence("14.12", "{name}: {time:.1f} ± {d_time:.1f} mean times, {bytes:.3f} ± {d_bytes:.3f} MB.")

sentence(
    "14.13",
    "Of BSP, SSP and ASP, the one that needs most takes {in_time:.2f} times as long as the one that needs"
    " least, and {in_bytes:.2f} times the bytes.",
    expect="in_time > 1.5 and in_bytes < 1.25",
)

sentence(
    "14.14",
    "BSP's mean times for each batch: {one:.1f} with accumulate=1, {four:.1f} with 4, {sixteen:.1f} with 16.",
    expect="four < 0.8 * one and sixteen < 0.65 * one and sixteen > 1.1",
)

timed_sentence(
    "14.15",
    "The measured times of the 20 runs are {ratio[1]:.2f} times the virtual ones with the same draws (median; "
    "quartiles {ratio[0]:.2f} and {ratio[2]:.2f}). One backup saved {measured:.0%} ± {d_measured:.0%} of BSP's time, "
    "in virtual time {virtual:.0%} ± {d_virtual:.0%}. The formula says {formula:.0%}.",
    expect="0.9 < ratio[1] < 1.5 and measured < formula and virtual < formula",
)

sentence(
    "14.16",
    "After equal seconds (the runs differ by {apart:.1%}): ASP reads {asp:.0f} ± {d_asp:.0f} percentage points fewer "
    "of the 8s and 9s than BSP, SSP {ssp:.0f} ± {d_ssp:.0f} fewer. With one backup {backup:.0%} of them are read. "
    "(Five seeds, paired, 95 % intervals.)",
    expect="apart < 0.03 and 5 < asp - d_asp and asp + d_asp < 20 and -3 < ssp < 5 and backup < 0.01",
)

sentence(
    "14.17",
    "After equal pushes ASP was {before:.0f} points behind BSP: {left:.0%} of that is left. Worker 3 started {steps} "
    "steps under ASP and {bsp_steps} under BSP; it sent {share:.0%} of ASP's pushes. Of the digits 0 to 6 ASP reads "
    "{others:.0f} ± {d_others:.0f} points more than BSP, of all digits {fewer:.1f} ± {d_fewer:.1f} fewer.",
    expect="before > 40 and left < 0.3 and abs(steps / bsp_steps - 1) < 0.1 and share < 0.15 and others > d_others "
    "and fewer > d_fewer",
)

sentence(
    "14.18",
    "With shuffled rows worker 3 sent {sent} pushes, and {dropped} were dropped. After equal seconds one backup reads "
    "{more:+.1f} ± {d_more:.1f} points more of the held-out digits than BSP; after {rounds} rounds of both, "
    "{even:+.1f} ± {d_even:.1f}. (Five seeds, paired, 95 % intervals.)",
    expect="dropped >= sent - 1 and more > d_more and abs(even) < 2",
)

card(
    "14.19",
    "At {held} of {ages} ages the loss fell at 0.97 of the border, and grew at 1.03 of it.",
    expect="held == ages",
)

sentence(
    "14.20",
    "{held} of {all_} runs end on the side of the black line that their border says.",
    expect="held == all_",
)

sentence(
    "14.21",
    "Worker 3 is {slower:.0f} times slower. Of the rates tried, the plain mean converges up to ηλ = {mean_to}, where "
    "the border for equal workers is {border:.2f}, and the weighted mean up to {weighted_to}. At its best rate the "
    "plain mean ends at {mean_best:.4f} of the first loss, the weighted one at {weighted_best:.4f}.",
    expect="border < mean_to < weighted_to and 0.9 * mean_best < weighted_best < 1.5 * mean_best",
)

sentence(
    "14.22",
    "Of the rates tried, the loss falls up to ηλ = {fresh:.2f} with fresh gradients, and up to {old:.2f} with those "
    "that are 3 updates old.",
    expect="0.35 < old < 0.5 and 1.9 < fresh <= 2.05",
)


@asks(
    "14.1",
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
    "14.2",
    "Keep a table of when each worker has completed each clock, and fill it clock by clock.",
    "Two things must have happened before a worker starts clock c: one of its own, and one of the slowest worker. "
    "may_pull of SSP says which clock the slowest must have completed.",
    "For each c a worker starts at the later of two times. The second one plays no part while c is small.",
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
    "14.3",
    "The formula knows gradients of one age. Here they have several, so ask an experiment, as delayed_descent does: "
    "one number x, and each push takes rate times an old x from it. Here rate is lr · curvature / workers.",
    "Keep every x in a list. Which element is the x of age pushes ago? Go through the ages many times: a pattern that "
    "is seen once says little about what grows.",
    "Between a rate with which x dies out and one with which it grows lies the border: halve the distance, some "
    "twenty times. Then keep a margin of a few percent, and make a learning rate of the rate of one push.",
)
def safe_lr(function: Any, rng: np.random.Generator) -> str:
    """Make safe_lr, of curvature, workers and ages, stable where one worker is slow, and not timid."""
    refuse_if(not callable(function), f"Expected the function safe_lr, got {function!r}.")
    drawn = [(int(rng.integers(5, 9)), int(rng.integers(2, 11))) for _ in range(6)]
    for workers, slower in [(int(rng.integers(4, 9)), 1), (4, 12), (4, 6), (4, 4), (6, 3), *drawn]:
        curvature, slow = float(rng.uniform(0.05, 50)), int(rng.integers(workers))
        ages = _ages(workers, slower, slow)
        speeds = f"one of them {slower} times slower" if slower > 1 else "equally fast"
        with case(
            f"safe_lr({curvature:.3g}, workers={workers}, ages=[{', '.join(map(str, ages[:12]))}, …]), {speeds},"
        ):
            lr = number(function(curvature, workers, list(ages)))
            refuse_if(not 0 < lr < np.inf, f"is {lr}, not a learning rate above 0.")
            growth, above = (_growth(factor * lr / workers * curvature, ages) for factor in (1, 1.1))
            border = "this is the border itself, or hardly above, where swings never end: keep a margin, such as 0.95"
            refuse_if(1 - 1e-9 <= growth < 1.001, f"is {lr:.4g}, and {border}.")
            refuse_if(growth >= 1, f"is {lr:.4g}, and the swings grow by a factor of {growth:.3f} with each push.")
            refuse_if(above < 1, f"is {lr:.4g}, and 1.1 times as much would still be stable: too timid.")
    return "Stable for 11 clusters, ten of them with a slow worker, and within 1.1 of the border."


def _ages(workers: int, slower: int, slow: int) -> list[int]:
    """The ages of the gradients of ASP, push by push, over one step of the worker that is ``slower`` times slower."""
    versions, pulled, ages = 0, [0] * workers, []
    for tick in range(1, 3 * slower + 1):
        for worker in range(workers):
            if worker != slow or tick % slower == 0:
                ages.append((tick, versions - pulled[worker]))
                versions += 1
                pulled[worker] = versions
    return [age for tick, age in ages if tick > 2 * slower]


def _growth(push: float, ages: list[int]) -> float:
    """The factor by which swings of x ← x − push · (x, ``age`` pushes ago) grow in a push, the ages in turn."""
    size = max(ages) + 1
    period = np.eye(size)
    for age in ages:
        step = np.eye(size, k=-1)
        step[0, 0] = 1
        step[0, age] -= push
        period = step @ period
    return float(np.abs(np.linalg.eigvals(period)).max() ** (1 / len(ages)))
