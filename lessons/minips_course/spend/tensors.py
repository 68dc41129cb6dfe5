"""What each tensor costs, in bytes and in error, with each of several quantizers."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np

import minips as ps
from minips.stage import Tensors

WAYS = (*(ps.TopK(fraction=f) for f in (0.001, 0.003, 0.01)), ps.Sign(), *(ps.Uniform(bits=bits) for bits in (2, 4, 8)))
"""Quantizers from a twentieth of a bit for each value to eight bits."""
DRAWS = 20


class Way(NamedTuple):
    """One way to send a tensor."""

    quantizer: ps.Quantizer
    bytes: int
    error: float
    """The mean squared distance between a gradient and what arrives of it."""


def options(problem: ps.Problem, ways: Sequence[ps.Quantizer] = WAYS) -> dict[str, list[Way]]:
    """Measure each way to send each tensor, on gradients of batches of 32 rows at the start: fewest bytes first."""
    drawn, rng = _gradients(problem), np.random.default_rng(0)
    start = problem.init(np.random.default_rng(0))
    found: dict[str, dict[int, Way]] = {name: {} for name in start}
    for name, p in start.items():
        for way in ways:
            errors = [np.square(way.decode(way.encode(g[name], rng)) - g[name]).sum() for g in drawn]
            one = Way(way, int(way.nbytes(p.shape, p.dtype) or 0), float(f"{np.mean(errors):.4g}"))
            found[name].setdefault(one.bytes, one)
    return {name: [rows[size] for size in sorted(rows)] for name, rows in found.items()}


def squared_length(problem: ps.Problem) -> float:
    """Return the mean squared length of the gradients that `options` measures."""
    return float(np.mean([sum(np.square(x).sum() for x in g.values()) for g in _gradients(problem)]))


def _gradients(problem: ps.Problem) -> list[Tensors]:
    rng = np.random.default_rng(0)
    start = problem.init(rng)
    return [problem.gradient(start, rng.choice(problem.rows, 32, replace=False)) for _ in range(DRAWS)]


def alone(config: ps.Config, names: Sequence[str], quantizer: ps.Quantizer, memory: ps.Memory) -> dict[str, ps.Config]:
    """Return configs that quantize none of the tensors, one of them, or all."""
    choices: dict[str, Any] = {name: {name: quantizer, "*": ps.Exact()} for name in names}
    choices = {"none": ps.Exact(), **choices, "all": quantizer}
    return {name: replace(config, push=ps.Codec(choice, memory)) for name, choice in choices.items()}


def bytes_in(problem: ps.Problem, config: ps.Config, steps: int) -> int:
    """Return the bytes that the workers send in so many steps."""
    return ps.train(problem, replace(config, steps=steps), engine=ps.Simulated()).bytes_sent


def fitting(problem: ps.Problem, config: ps.Config, quantizer: Any, budget: int) -> ps.Config:
    """Return the config with this quantizer, or mapping of names to quantizers, and the most steps whose bytes fit."""
    config = replace(config, push=replace(config.push, quantizer=quantizer))
    ten, twenty = (bytes_in(problem, config, steps) for steps in (10, 20))
    return replace(config, steps=max(int(10 + 10 * (budget - ten) / (twenty - ten)), 1))


@cache
def digits(seed: int) -> ps.MLP:
    """Return the lesson's network, with its own split into training and held-out digits for each seed."""
    return ps.MLP(*ps.datasets.digits(seed=seed), hidden=100)
