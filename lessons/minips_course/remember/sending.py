"""Gradients sent through a quantizer and a memory, and what is left over."""

import numpy as np

import minips as ps
from minips.stage import Array
from minips.stages.memories import State
from minips.stages.quantizers import contractive


def count_moved(problems: list[ps.Problem], config: ps.Config) -> Array:
    """The number of values of W that training has moved at its end; a problem's place in the list is its seed."""
    runs = [
        ps.train(problem, config.with_({"seed": seed}), engine=ps.Simulated()) for seed, problem in enumerate(problems)
    ]
    return np.array([np.count_nonzero(run.params["W"]) for run in runs])


def gradients(problem: ps.Problem, steps: int = 200, seed: int = 5) -> Array:
    """The gradients of W for batches of 32 rows, all at the first parameters, in float64."""
    rng = np.random.default_rng(seed)
    params = problem.init(rng)
    batches = [rng.choice(problem.rows, 32, replace=False) for _ in range(steps)]
    return np.array([problem.gradient(params, rows)["W"] for rows in batches], "f8")


def send(
    meant: Array, quantizer: ps.Quantizer, memory: ps.Memory, seed: int = 0, shrunk: bool = False
) -> tuple[Array, Array]:
    """What arrives of each gradient, and what the memory holds after it. If ``shrunk``, the quantizer is given
    x / (1 + ω) in place of x.
    """
    state, arrived, held, rng = State(), [], [], np.random.default_rng(seed)
    for g in meant:
        p = memory.compensate(g, state)
        arrived.append(quantizer.decode(quantizer.encode(contractive(quantizer, p) if shrunk else p, rng)))
        memory.update(p, arrived[-1], state)
        held.append(memory.compensate(np.zeros_like(g), dict(state)))
    return np.array(arrived), np.array(held)


def apart(arrived: Array, meant: Array) -> float:
    """The relative error of what arrived."""
    return float(np.linalg.norm(arrived - meant) / np.linalg.norm(meant))


def lengths_held(meant: Array, quantizer: ps.Quantizer, shrunk: bool = False) -> Array:
    """The length of what error feedback holds after each gradient (columns), for five series of random numbers (rows);
    the longest gradient has the length 1.
    """
    held = [send(meant, quantizer, ps.ErrorFeedback(), seed, shrunk)[1] for seed in range(5)]
    return np.asarray(np.linalg.norm(held, axis=(2, 3)) / np.linalg.norm(meant, axis=(1, 2)).max())


def most_held(q: float) -> float:
    """The bound on that length for a contraction with the factor ``q``: √q / (1 − √q)."""
    return float(np.sqrt(q) / (1 - np.sqrt(q)))
