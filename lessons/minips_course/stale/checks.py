"""The exercises of "Learn from old gradients"."""

import dataclasses
from typing import Any

import numpy as np

import minips as ps
from minips.lab.course.exercises import asks, case, conforms, distance, refuse_if


@asks(
    "stale.1",
    "While the straggler computes one gradient, the fast workers push many times. So which earlier x does each push "
    "use? The number of pushes to look back differs from push to push.",
    "Keep every x in a list, as path does, and go through the ages in order: the age says how far from the end of the "
    "list to look. How many values must the list contain at first, so that the largest age can be looked up?",
    "Write one loop that goes through the ages many times and appends one x for each push. Slow growth shows late: "
    "make some thousands of pushes, and stop as soon as x is huge.",
)
def grows(function: Any, rng: np.random.Generator) -> str:
    """Make grows, a function of rate and ages, right for pushes of different ages."""
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
    """Return ASP's gradient ages, push by push, in one step of worker ``slow``, which is ``slower`` times slower."""
    versions, pulled, ages = 0, [0] * workers, []
    for tick in range(1, 3 * slower + 1):
        for worker in range(workers):
            if worker != slow or tick % slower == 0:
                ages.append((tick, versions - pulled[worker]))
                versions += 1
                pulled[worker] = versions
    return [age for tick, age in ages if tick > 2 * slower]


def _growth(rate: float, ages: list[int]) -> float:
    """Return the mean growth, per push, of swings of x ← x − rate · (x of ``age`` pushes ago), cycling through ages."""
    size = max(ages) + 1
    turn = np.eye(size)
    for age in ages:
        step = np.eye(size, k=-1)
        step[0, 0] = 1
        step[0, age] -= rate
        turn = step @ turn
    return float(np.abs(np.linalg.eigvals(turn)).max() ** (1 / len(ages)))


def _border(ages: list[int]) -> float:
    """Return the largest rate at which swings do not grow, to a thousandth."""
    stable, unstable = 0.0, 2.0
    for _ in range(11):
        middle = (stable + unstable) / 2
        stable, unstable = (middle, unstable) if _growth(middle, ages) < 1 else (stable, middle)
    return stable


@asks(
    "stale.2",
    "By the first line of the task, which weight has a gradient that is exactly `usual` versions old? And which weight "
    "has a gradient for which 1 + age is twice as large?",
    "Beyond `usual`, the weight times (1 + age) is always the same number. Which number makes the jump disappear?",
    "One expression covers both cases: the smaller of two numbers, one of which is 1.",
)
def fade(aggregator: Any, rng: np.random.Generator) -> str:
    """Make Fade reduce the weight of gradients older than usual, according to their age."""
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
