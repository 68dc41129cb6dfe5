"""Gradients of a descent, sent at 4 bits a value with a memory and without."""

import numpy as np

import minips as ps
from minips.stage import Array
from minips.stages.memories import State

STEPS, SETTLED, RATE = 60, 20, np.float32(0.1)


def gradients(problem: ps.Problem, batch: int | None, seed: int) -> Array:
    """The gradients of W on the way of plain descent, of all the rows or of ``batch`` random ones at each step."""
    w, rng, found = problem.init(np.random.default_rng(seed)), np.random.default_rng(seed), []
    for _ in range(STEPS):
        g = problem.gradient(w, None if batch is None else rng.choice(problem.rows, batch, replace=False))
        w = {name: value - RATE * g[name] for name, value in w.items()}
        found.append(g["W"].astype("f8"))
    return np.array(found)


def errors(meant: Array, memory: ps.Memory) -> Array:
    """The relative error of what arrives at each step."""
    ours, theirs, found, quantizer = State(), State(), [], ps.Uniform(bits=4)
    for g in meant:
        p = memory.compensate(g, ours)
        sent = quantizer.decode(quantizer.encode(p, None))
        memory.update(p, sent, ours)
        found.append(np.linalg.norm(memory.restore(sent, theirs) - g) / np.linalg.norm(g))
    return np.array(found)


def both(problems: list[ps.Problem], batch: int | None) -> dict[str, Array]:
    """These errors (columns: steps) without a memory and with `Delta`, for each problem (rows)."""
    ways = [gradients(problem, batch, seed) for seed, problem in enumerate(problems)]
    return {type(m).__name__: np.array([errors(way, m) for way in ways]) for m in (ps.NoMemory(), ps.Delta())}


def helps(found: dict[str, Array]) -> list[float]:
    """For each problem: how many times the error with `Delta` the error without it is, from step 20 on."""
    without, with_delta = (found[name][:, SETTLED:].mean(axis=1) for name in ("NoMemory", "Delta"))
    return [float(ratio) for ratio in without / with_delta]
