"""The exercises of "Learn from old gradients"."""

import dataclasses
from typing import Any

import numpy as np

import minips as ps
from minips.lab.course.exercises import asks, case, conforms, distance, refuse_if


@asks(
    "stale.1",
    "The straggler's gradient is as old as several of its fast colleagues' pushes. So which x does each push read? Not "
    "the same number of pushes back each time.",
    "Keep every x in a list, as path does, and go through the ages in turn: the age says how far from the end of the "
    "list to look. How many values must stand there at first, for the oldest of them?",
    "One loop over the ages, many times over, that appends one x a push. Slow growth shows late: some thousands of "
    "pushes, and stop as soon as x is huge.",
)
def grows(function: Any, rng: np.random.Generator) -> str:
    """Make grows right for pushes of different ages."""
    refuse_if(not callable(function), f"Expected the function grows, got {function!r}.")
    drawn = [(int(rng.integers(5, 9)), int(rng.integers(2, 11))) for _ in range(4)]
    for workers, slower in [(int(rng.integers(4, 9)), 1), (4, 12), (4, 4), (6, 3), *drawn]:
        ages = _ages(workers, slower, int(rng.integers(workers)))
        speeds = f"one of {workers} workers {slower} times slower" if slower > 1 else f"{workers} equal workers"
        border = _border(ages)
        for factor in (0.5, 0.96, 1.04, 2.0):
            rate = factor * border
            with case(f"grows({rate:.3f}, ages=[{', '.join(map(str, ages[:12]))}, …]), {speeds},"):
                got = function(rate, list(ages))
                refuse_if(not isinstance(got, bool | np.bool_), f"returned {got!r}; expected True or False.")
                turns = (
                    f"a swing becomes {_growth(rate, ages) ** len(ages):.3f} times as large in each turn of the ages"
                )
                refuse_if(got != (factor > 1), f"is {got}, but {turns}.")
    return "Right on both sides of the border of eight clusters, seven of them with a slow worker."


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


def _growth(rate: float, ages: list[int]) -> float:
    """The factor by which swings of x ← x − rate · (x, ``age`` pushes ago) grow in a push, the ages in turn."""
    size = max(ages) + 1
    turn = np.eye(size)
    for age in ages:
        step = np.eye(size, k=-1)
        step[0, 0] = 1
        step[0, age] -= rate
        turn = step @ turn
    return float(np.abs(np.linalg.eigvals(turn)).max() ** (1 / len(ages)))


def _border(ages: list[int]) -> float:
    """The largest rate at which swings do not grow, to a thousandth."""
    stable, unstable = 0.0, 2.0
    for _ in range(11):
        middle = (stable + unstable) / 2
        stable, unstable = (middle, unstable) if _growth(middle, ages) < 1 else (stable, middle)
    return stable


@asks(
    "stale.2",
    "By the first line of the task, what is the weight of a gradient exactly `usual` versions old? And if 1 + age is "
    "twice as large?",
    "Beyond `usual` the weight times (1 + age) is always the same number. Which one, if there is no jump?",
    "Two cases in one expression: the smaller of two numbers, one of which is 1.",
)
def fade(aggregator: Any, rng: np.random.Generator) -> str:
    """Make Fade weigh gradients by their age, and only those that are older than usual."""
    conforms(aggregator, ps.Aggregator, "Fade()")
    names = [field.name for field in dataclasses.fields(aggregator)]
    refuse_if(names != ["usual"], f"Expected the field usual; got {aggregator!r}.")
    for usual in (0, 1, 3, *map(int, rng.integers(4, 20, size=3))):
        mine = dataclasses.replace(aggregator, usual=usual)
        for ages in ([0], [usual], [2 * usual + 1], [*map(int, rng.integers(0, 4 * usual + 4, size=3))]):
            gradients = [{"w": rng.normal(size=4), "b": rng.normal(size=2)} for _ in ages]
            pushes = [
                ps.Contribution(i, 50, 50 - age, g, 0.5, age)
                for i, (age, g) in enumerate(zip(ages, gradients, strict=True))
            ]
            with case(f"With usual={usual} and gradients of the ages {ages},"):
                got = mine.combine(pushes)
                weights = [min(1.0, (1 + usual) / (1 + age)) for age in ages]
                wanted = {
                    name: np.mean([w * g[name] for w, g in zip(weights, gradients, strict=True)], axis=0)
                    for name in ("w", "b")
                }
                ratio = float(np.vdot(got["w"], wanted["w"]) / np.vdot(wanted["w"], wanted["w"]))
                refuse_if(distance(got, wanted) > 1e-9, f"the result is about {ratio:.3g} times the expected one.")
    return "Gradients up to the usual age count in full, older ones less, without a jump."
