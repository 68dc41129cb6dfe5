"""The exercises of "Spend bits where they matter"."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

import minips as ps
from minips.lab.course.exercises import asks, case, drawn_seed, number, refuse_if
from minips.lab.course.intervals import interval
from minips.stages.quantizers import Sign, TopK, Uniform
from minips_course.arrays import drawn_names
from minips_course.spend.tensors import Way


@asks(
    "spend.3",
    "Begin with the first option of each tensor: it has the fewest bytes. How many bytes of the budget are left?",
    "Look at every option of every tensor that fits into what is left and has a lower error than the chosen one. How "
    "much lower is the error for each more byte?",
    "Take the option with the most error saved per byte, compute the bytes left anew, and repeat until no option fits. "
    "Then return the quantizers of the chosen options.",
)
def allocate(function: Any, rng: np.random.Generator) -> str:
    """Choose each tensor's quantizer within a budget: byte by byte where the error falls the most."""
    refuse_if(not callable(function), f"Expected the function allocate(options, budget), got {function!r}.")
    for trial in range(60):
        options = _drawn_options(rng, trial)
        sizes = [[one.bytes for one in rows] for rows in options.values()]
        least, most = sum(map(min, sizes)), sum(map(max, sizes))
        budget = int(least + (most - least) * rng.uniform(0.1, 0.7)) if trial else least
        with case(f"For {', '.join(options)}, and {budget} bytes:"):
            _allocates(function, options, budget)
    return "Each allocation keeps to its budget, and its error is as low as that of the rule."


def _drawn_options(rng: np.random.Generator, trial: int) -> dict[str, list[Way]]:
    """Draw tensors of other sizes and errors. The error of one option of each is higher than that of a smaller one."""
    names = ["U", "a", "W", "b"] if trial == 1 else drawn_names(rng, int(rng.integers(2, 5)))
    found = {}
    for name in names:
        values, scale = int(10 ** rng.uniform(1.5, 4)), 10 ** rng.uniform(-2, 1)
        ways = [TopK(fraction=round(float(rng.uniform(0.001, 0.02)), 5)), Sign(), *(Uniform(bits=b) for b in (2, 4, 8))]
        bits = (float(rng.uniform(0.03, 0.3)), 1, 2, 4, 8)
        left = (1.0, rng.uniform(0.4, 0.8), rng.uniform(0.9, 3), rng.uniform(0.02, 0.2), rng.uniform(0.0001, 0.001))
        shape = zip(ways, bits, left, strict=True)
        found[name] = [
            Way(way, 4 + int(values * bit / 8) + int(bit > 1), scale * float(rest)) for way, bit, rest in shape
        ]
    return found


def _allocates(function: Any, options: dict[str, list[Way]], budget: int) -> None:
    """Refuse a function unless its bytes fit, and its error is at most that of the rule."""
    given = {name: [*rows] for name, rows in options.items()}
    got = function(given, budget)
    refuse_if(given != options, "it changed the options that it was given.")
    refuse_if(
        not isinstance(got, Mapping) or {*got} != {*options}, f"it returned {got!r:.90}; a quantizer for each tensor?"
    )
    picked = []
    for name, rows in options.items():
        same = [one for one in rows if one.quantizer == got[name]]
        refuse_if(not same, f"{name} got {got[name]!r:.60}, which is the quantizer of none of its options.")
        picked.append(same[0])
    size, error = sum(one.bytes for one in picked), sum(one.error for one in picked)
    refuse_if(size > budget, f"it spent {size} bytes.")
    least = _by_the_rule(options, budget)
    refuse_if(error > least * (1 + 1e-9), f"its error is {error:.4g}; the rule ends at {least:.4g}.")


def _by_the_rule(options: dict[str, list[Way]], budget: int) -> float:
    chosen = {name: rows[0] for name, rows in options.items()}
    while True:
        left = budget - sum(one.bytes for one in chosen.values())
        better = [
            ((chosen[name].error - one.error) / (one.bytes - chosen[name].bytes), name, number)
            for name, rows in options.items()
            for number, one in enumerate(rows)
            if 0 < one.bytes - chosen[name].bytes <= left and one.error < chosen[name].error
        ]
        if not better:
            return sum(one.error for one in chosen.values())
        _, name, number = max(better)
        chosen[name] = options[name][number]


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
