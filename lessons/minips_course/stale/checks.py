"""The exercises of "Learn from old gradients"."""

import dataclasses
from typing import Any

import numpy as np

import minips as ps
from minips.lab.course.exercises import asks, case, conforms, distance, refuse_if
from minips.stage import Tensors
from minips.testing.base import same_bits
from minips_course.arrays import copied, drawn_like, drawn_tensors

CLOSE = 0.04
"""By how much a border may be wrong."""


@asks(
    "stale.3",
    "Write first what says whether swings die out at one rate: keep every x in a list, go through the ages in order, "
    "and look so far back from the end of the list. How many values must the list hold at first?",
    "At each push v becomes momentum · v plus the old x, and then x moves by −rate · v. Slow growth shows late: make "
    "some thousands of pushes, and stop as soon as x is huge. The swings died out if the last ones are below 1.",
    "Then halve, as in lesson 02: keep a rate that is stable and one that is not, try the one between them, and go on "
    "until they differ by 1 %. Start from 0.001 and 4.",
)
def largest(function: Any, rng: np.random.Generator) -> str:
    """Make border, a function of ages and momentum, right for pushes of different ages, with momentum."""
    refuse_if(not callable(function), f"Expected the function border, got {function!r}.")
    for momentum in (0.0, 0.9):
        for workers, slower in [(int(rng.integers(2, 9)), 1), (4, 4), (1, 1)]:
            speeds = f"one of {workers} workers {slower} times slower" if slower > 1 else f"{workers} equal workers"
            _near(function, _ages(workers, slower, int(rng.integers(workers))), momentum, speeds)
    for momentum in (0.0, float(rng.integers(3, 9)) / 10):
        size, before = int(rng.integers(5, 12)), 0.0
        for _ in range(2):  # as many ages, with another border
            ages = _tangled(rng, momentum, size, before)
            _near(function, ages, momentum, "ages that jump to and fro")
            before = _border(ages, momentum)
    return "Within 4 % of the border for ten lists of ages: of equal workers, of a slow one, and others."


def _near(function: Any, ages: list[int], momentum: float, whose: str) -> None:
    """Refuse a function whose border for these ages is wrong by more than 4 %."""
    given = list(ages)
    with case(
        f"border(ages=[{', '.join(map(str, ages[:12]))}{', …' if len(ages) > 12 else ''}], {momentum}), {whose},"
    ):
        got = function(given, momentum)
        refuse_if(given != ages, f"changed the list ages: it is now [{', '.join(map(str, given[:12]))}, …].")
        refuse_if(not isinstance(got, float | int | np.number), f"returned {got!r}; expected a number.")
        if abs(got / (right := _border(ages, momentum)) - 1) <= CLOSE:
            return
        much = _growth(got, ages, momentum) ** len(ages) if 0 < got < 10 else np.nan
        refuse_if(True, f"is {got:.4g}: there a swing becomes {much:.3g} times as large in each turn; try {right:.3g}.")


def _tangled(rng: np.random.Generator, momentum: float, size: int, before: float) -> list[int]:
    """Draw ages whose order matters: sorted or the other way round, their border differs, and from ``before``, too. All
    rates below the border are stable, and none above it.
    """
    while True:
        ages: list[int] = rng.integers(0, 9, size=size).tolist()
        border = _border(ages, momentum)
        clear = _growth(0.96 * border, ages, momentum) ** 4000 < 0.02 and _growth(1.04 * border, ages, momentum) > 1.001
        others = [_border(sorted(ages), momentum), _border(ages[::-1], momentum), before] if clear else []
        if not clear or any(abs(other / border - 1) <= 2 * CLOSE for other in others):
            continue
        rates = border * np.geomspace(0.002, 30, 600)
        if all((_growth(rate, ages, momentum) < 1) == (rate < border) for rate in rates):
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


def _growth(rate: float, ages: list[int], momentum: float) -> float:
    """Return the mean growth of swings, per push: v ← momentum · v + (x of ``age`` pushes ago), x ← x − rate · v."""
    size = max(ages) + 1  # of the last values of x; v comes after them
    turn = np.eye(size + 1)
    for age in ages:
        step = np.eye(size + 1, k=-1)
        step[size], step[0] = 0, 0
        step[size, size], step[size, age] = momentum, 1
        step[0] = -rate * step[size]
        step[0, 0] += 1
        turn = step @ turn
    return float(np.abs(np.linalg.eigvals(turn)).max() ** (1 / len(ages)))


def _border(ages: list[int], momentum: float) -> float:
    """Return the largest rate at which swings do not grow, to a thousandth."""
    stable, unstable = 1e-3, 4.0
    while unstable > 1.001 * stable:
        middle = (stable * unstable) ** 0.5
        stable, unstable = (middle, unstable) if _growth(middle, ages, momentum) < 1 else (stable, middle)
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
