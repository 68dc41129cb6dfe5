"""The exercises of "Spend bits where they matter"."""

import math
from dataclasses import replace
from typing import Any

import numpy as np

import minips as ps
from minips.lab.course.exercises import asks, case, drawn_seed, refuse_if
from minips.lab.course.intervals import interval

SHARE, SEEDS = 0.75, 8


@asks(
    "spend.1",
    "Bytes buy bits or steps. Which tensor takes most of the bytes, and how much harm does it do for each byte saved?",
    "Change the quantizer of one tensor in the dict, and keep the memory. Then steps_within(codec, 0.75) returns the "
    "number of steps that the budget pays for.",
    'ps.Codec({"U": ps.TopK(fraction=…), "*": ps.Sign()}, feedback), with a fraction below 0.01, and more than 40 '
    "steps.",
)
def beat_signs(plan: Any, rng: np.random.Generator) -> str:
    """Read more digits than signs with error feedback do, with at most three quarters of their bytes."""
    refuse_if(not isinstance(plan, ps.Config), f"Expected your plan, a ps.Config, got a {type(plan).__name__}.")
    signs = ps.Config(steps=30, transport=ps.InProc(), push=ps.Codec(ps.Sign(), ps.ErrorFeedback()))
    push = replace(plan.push, quantizer=signs.push.quantizer)
    others = replace(plan, steps=signs.steps, push=push) != signs
    refuse_if(others, "Leave everything but quantizers and steps as it was, so that the plans can be compared.")
    points = []
    for _ in range(SEEDS):
        seed = drawn_seed(rng)
        problem = ps.MLP(*ps.datasets.digits(seed=seed), hidden=100)
        before, after = (ps.train(problem, replace(one, seed=seed), engine=ps.Threads()) for one in (signs, plan))
        ratio = after.bytes_sent / before.bytes_sent
        refuse_if(ratio > SHARE, f"The plan sends {ratio:.3f} of the bytes of signs; at most {SHARE} is allowed.")
        points.append(100 * (float(after.accuracy or 0) - float(before.accuracy or 0)))
        if len(points) == SEEDS // 2 and sum(points) <= 0:
            break  # the other half of the seeds would hardly make up for these
    n = len(points)
    mean, half = interval(points)
    said = f"{mean:+.1f} ± {half:.1f} percentage points from signs with feedback ({n} seeds, pairs)"
    refuse_if(not mean - half > 0, f"With {ratio:.2f} of the bytes: {said}. The whole interval has to be above zero.")
    return f"{ratio:.2f} of the bytes, and {said}."


@asks(
    "spend.2",
    "A harm is a difference of two runs with the same seed. Compute it for each problem first, then their mean.",
    "replace(config, seed=seed) changes the seed and keeps the memory. enumerate(problems) yields the seeds.",
    "Collect the differences in a list. How far do they scatter, and where does their number enter?",
)
def harm(function: Any, rng: np.random.Generator) -> str:
    """Write harm, a function of problems, config and name: the mean added loss, and half its 95 % interval's length."""
    refuse_if(not callable(function), f"Expected the function harm, got {function!r}.")
    quantizers: tuple[ps.Quantizer, ...] = (ps.Sign(), ps.TopK(fraction=0.05))
    for memory in (ps.ErrorFeedback(), ps.NoMemory()):
        n, data = int(rng.integers(3, 6)), int(rng.integers(1000))
        problems = [
            ps.MLP(*ps.datasets.synthetic(rows=120, features=8, classes=3, seed=data + i), hidden=6) for i in range(n)
        ]
        quantizer, name = quantizers[int(rng.integers(2))], ("U", "W")[int(rng.integers(2))]
        push = ps.Codec(quantizer, memory)
        config = ps.Config(workers=2, steps=6, batch_size=16, push=push, seed=drawn_seed(rng), transport=ps.InProc())
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
            got = function(problems, config, name)
            pair = isinstance(got, tuple) and len(got) == 2
            refuse_if(not pair, f"it returned {got!r}; expected a mean and half an interval's length.")
            for what, one, other in zip(("the mean", "half the length"), got, wanted, strict=True):
                near = math.isclose(float(one), other, rel_tol=1e-3, abs_tol=1e-9)
                refuse_if(not near, f"{what} is {float(one):.6f}, expected {other:.6f}.")
    return "Mean and interval are right, with a memory and without one."
