"""The exercises of "Spend bits where they matter"."""

import math
from dataclasses import replace
from typing import Any

import numpy as np

import minips as ps
from minips.lab.course.exercises import asks, case, drawn_seed, number, refuse_if
from minips.lab.course.intervals import interval

STEPS, RATE = 4, 1.0
"""The steps that signs make for the budget, and their best rate among those of the lesson."""
MARGIN = 2.0
"""A plan has to gain more percentage points than these. Top-k of all tensors may gain about one."""
LOOKS = (16, 24, 32, 40, 48)
"""After so many seeds a plan may be decided."""


@asks(
    "spend.1",
    "Bytes buy bits or steps. Which tensor takes most of the bytes?",
    "Change the quantizer of one tensor in the dict, and keep the memory. Then steps_within(codec, budget) returns the "
    "number of steps that the budget pays for, and lab.best_of shows the best rate.",
    'ps.Codec({"U": ps.TopK(fraction=…), "*": ps.Sign()}, feedback), with a fraction below 0.002, more than 7 steps, '
    "and a rate above 1.",
)
def beat_signs(plan: Any, rng: np.random.Generator) -> str:
    """Read more digits than signs with error feedback at their best rate do, with at most their bytes."""
    refuse_if(not isinstance(plan, ps.Config), f"Expected your plan, a ps.Config, got a {type(plan).__name__}.")
    signs = ps.Config(
        steps=STEPS,
        transport=ps.InProc(),
        push=ps.Codec(ps.Sign(), ps.ErrorFeedback()),
        optimizer=ps.SGD(lr=RATE),
    )
    rate = ps.SGD(lr=getattr(plan.optimizer, "lr", RATE))
    push = replace(plan.push, quantizer=signs.push.quantizer)
    others = plan.optimizer != rate or replace(plan, steps=STEPS, push=push, optimizer=signs.optimizer) != signs
    refuse_if(others, "Change quantizers, steps and learning rate alone, so that the plans can be compared.")
    points = list[float]()
    for look in LOOKS:
        while len(points) < look:
            ratio, gained = _pair(signs, plan, drawn_seed(rng))
            refuse_if(
                ratio > 1,
                f"Expected at most the bytes of {STEPS} steps of signs; the plan sends {ratio:.3f} times as many.",
            )
            points.append(gained)
        mean, half = interval(points)
        if abs(mean - MARGIN) > half:
            break
    said = f"{mean:+.1f} ± {half:.1f} percentage points from signs with feedback ({len(points)} seeds, pairs)"
    above = mean > MARGIN and mean - half > 0
    refuse_if(not above, f"With {ratio:.2f} of the bytes: {said}. The mean has to be above {MARGIN:g} points.")
    return f"{ratio:.2f} of the bytes, and {said}."


def _pair(signs: ps.Config, plan: ps.Config, seed: int) -> tuple[float, float]:
    """Train with both plans from one seed; return the share of the bytes, and the points of accuracy gained."""
    problem = ps.MLP(*ps.datasets.digits(seed=seed), hidden=100)
    before, after = (ps.train(problem, replace(one, seed=seed), engine=ps.Simulated()) for one in (signs, plan))
    gained = 100 * (float(after.accuracy or 0) - float(before.accuracy or 0))
    return after.bytes_sent / before.bytes_sent, gained


@asks(
    "spend.2",
    "A harm is a difference of two runs with the same seed. Compute it for each problem first, then their mean.",
    "replace(config, seed=seed) changes the seed and keeps the memory. enumerate(problems) yields the seeds.",
    "Collect the differences in a list. How far do they scatter, and where does their number enter?",
)
def harm(function: Any, rng: np.random.Generator) -> str:
    """Write harm, a function of problems, config and name: the mean added loss, and half its 95 % interval's length."""
    refuse_if(not callable(function), f"Expected the function harm, got {function!r}.")
    quantizers = [ps.Sign(), ps.TopK(fraction=float(rng.uniform(0.02, 0.3)))]
    rng.shuffle(quantizers)
    few, many = [(1, 3), (3, 1)][int(rng.integers(2))]
    for quantizer, memory, workers, n in (
        (quantizers[0], ps.ErrorFeedback(decay=0.9), few, 2),
        (quantizers[1], ps.NoMemory(), many, int(rng.integers(4, 7))),
    ):
        data = [ps.datasets.synthetic(rows=90, features=5, classes=3, seed=int(rng.integers(1000))) for _ in range(n)]
        problems: list[ps.Problem] = [
            ps.SoftmaxRegression(*one) if n == 2 else ps.MLP(*one, hidden=int(rng.integers(4, 7))) for one in data
        ]
        name = str(rng.choice(["b"] if n == 2 else [*problems[0].init(rng)]))
        push, steps = ps.Codec(quantizer, memory), int(rng.integers(3, 6))
        config = ps.Config(
            workers=workers, steps=steps, batch_size=8, push=push, seed=drawn_seed(rng), transport=ps.InProc()
        )
        alone = replace(config, push=ps.Codec({name: quantizer, "*": ps.Exact()}, memory))
        none = replace(config, push=ps.Codec(ps.Exact(), memory))
        losses = [
            [
                float(ps.train(problem, replace(one, seed=seed), engine=ps.Threads()).validation_loss or 0)
                for seed, problem in enumerate(problems)
            ]
            for one in (alone, none)
        ]
        added = np.subtract(losses[0], losses[1])
        wanted = interval(added)
        with case(f"For {name} of {n} problems, {push!r}:"):
            given = problems.copy()
            got = function(given, config, name)
            pair = isinstance(got, tuple | list) and len(got) == 2
            refuse_if(not pair, f"it returned {got!r}; expected a mean and half an interval's length.")
            refuse_if(given != problems, "it changed the list of problems.")
            for what, one, other in zip(("the mean", "half the length"), got, wanted, strict=True):
                near = math.isclose(number(one), other, rel_tol=1e-3, abs_tol=1e-9)
                refuse_if(not near, f"{what} is {float(one):.6f}, expected {other:.6f}.")
    return "Mean and interval are right, with a memory and without one."
