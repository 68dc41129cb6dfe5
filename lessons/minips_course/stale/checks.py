"""The exercises of "Learn from old gradients"."""

import dataclasses
from typing import Any

import numpy as np

import minips as ps
from minips.lab.course.exercises import asks, case, conforms, distance, refuse_if
from minips.stage import Tensors
from minips.testing.base import same_bits
from minips_course.arrays import copied, drawn_like, drawn_tensors


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
    drawn = [(int(rng.integers(5, 9)), int(rng.integers(2, 11))) for _ in range(3)]
    for workers, slower in [(4, 12), (int(rng.integers(4, 9)), 1), (9, 12), *drawn, (2, 9), (2, 1), (1, 1)]:
        speeds = f"one of {workers} workers {slower} times slower" if slower > 1 else f"{workers} equal workers"
        _both_sides(function, _ages(workers, slower, int(rng.integers(workers))), speeds)
    for _ in range(2):
        _both_sides(function, _tangled(rng), "ages that jump to and fro")
    return "Right on both sides of the border of nine clusters, six of them with a slow worker, and of other ages."


def _both_sides(function: Any, ages: list[int], whose: str) -> None:
    """Refuse a function that is wrong at a rate below or above the border of these ages."""
    border = _border(ages)
    for factor in (0.5, 0.96, 1.04, 2.0):
        if _growth(factor * border, ages) > 2:
            continue  # after a thousand pushes the swings are no longer floats
        rate, given = factor * border, list(ages)
        with case(f"grows({rate:.3f}, ages=[{', '.join(map(str, ages[:12]))}, …]), {whose},"):
            got = function(rate, given)
            refuse_if(given != ages, f"changed the list ages: it is now [{', '.join(map(str, given[:12]))}, …].")
            refuse_if(not isinstance(got, bool | np.bool_), f"returned {got!r}; expected True or False.")
            turns = f"a swing becomes {_growth(rate, ages) ** len(ages):.3g} times as large in each turn of the ages"
            refuse_if(got != (factor > 1), f"is {got}, but {turns}.")


def _tangled(rng: np.random.Generator) -> list[int]:
    """Draw ages whose order matters: sorted or the other way round, they have another border."""
    while True:
        ages: list[int] = rng.integers(0, 9, size=int(rng.integers(5, 12))).tolist()
        border, *others = _border(ages), _border(sorted(ages)), _border(ages[::-1])
        clear = _growth(0.96 * border, ages) ** 400 < 0.2 and _growth(1.04 * border, ages) ** 400 > 5
        steady = _growth(0.5 * border, ages) < 0.99 and _growth(2 * border, ages) > 1.01
        if clear and steady and all(abs(other / border - 1) > 0.06 for other in others):
            return ages


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
    kept: list[tuple[Tensors, Tensors]] = []
    for usual in (0, 1, 3, *map(int, rng.integers(4, 20, size=3)), int(rng.integers(100, 1000))):
        mine = dataclasses.replace(aggregator, usual=usual)
        several = rng.integers(0, 4 * usual + 4, size=int(rng.integers(2, 9))).tolist()
        for ages in (
            [0],
            [usual],
            [usual + 1],
            [2 * usual + 1],
            [*several, usual + 2],
            rng.permutation(several).tolist(),
        ):
            with case(f"With usual={usual} and gradients of the ages {ages},"):
                kept.append(_faded(mine, ages, rng))
    changed = any(not same_bits(got[name], then[name]) for got, then in kept for name in then)
    refuse_if(changed, "A later call wrote into arrays that an earlier call had returned. Make new ones in each call.")
    return "Gradients up to the usual age count in full, older ones less, without a jump."


def _faded(mine: Any, ages: list[int], rng: np.random.Generator) -> tuple[Tensors, Tensors]:
    """Refuse an aggregator that weakens gradients of these ages wrongly. Return what it returned, and a copy."""
    weights = [min(1.0, (1 + mine.usual) / (1 + age)) for age in ages]
    shaped = drawn_tensors(rng, int(rng.integers(1, 5)))
    gradients = [drawn_like(shaped, rng) for _ in ages]
    wanted = {name: np.mean([w * g[name] for w, g in zip(weights, gradients, strict=True)], axis=0) for name in shaped}
    workers = rng.permutation([0, *rng.choice(range(1, 100), size=len(ages) - 1, replace=False)]).tolist()
    clocks, versions = rng.integers(0, 10**6, size=(2, len(ages))).tolist()  # neither tells the age
    pushes = [
        ps.Contribution(workers[i], clocks[i], versions[i], copied(g), float(rng.normal()), age)
        for i, (g, age) in enumerate(zip(gradients, ages, strict=True))
    ]
    got = mine.combine(pushes)
    refuse_if({*got} != {*shaped}, f"the names of the result are {[*got]}, expected {[*shaped]}.")
    ratio = sum(float(np.vdot(got[name], x)) for name, x in wanted.items()) / sum(
        float(np.vdot(x, x)) for x in wanted.values()
    )
    size = max(float(np.abs(x).max()) for g in gradients for x in g.values())
    refuse_if(not distance(got, wanted) <= 1e-9 * size, f"the result is about {ratio:.3g} times the expected one.")
    for push, before in zip(pushes, gradients, strict=True):
        alike = all(same_bits(push.gradients[name], x) for name, x in before.items())
        refuse_if(not alike, f"it changed the gradient of worker {push.worker}.")
    return got, copied(got)
