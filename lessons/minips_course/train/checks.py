"""The exercises of "Train in a minute"."""

import copy
import dataclasses
from typing import Any

import numpy as np

import minips as ps
from minips.lab.course.exercises import asks, case, drawn_seed, equals, refuse_if
from minips.stage import Array

BASE, SEEDS = ps.Config(steps=100), 2


@asks(
    "train.4",
    "How large is a unit? np.abs(x).max() is the largest magnitude in x, and 127 units must reach it.",
    "np.round(x / unit).astype(np.int8) makes whole numbers of units. decode multiplies them by the unit again.",
    "If the largest magnitude is zero, do not divide by it: return zeros of dtype int8, and any unit.",
)
def one_byte(made: Any, rng: np.random.Generator) -> str:
    """Write a quantizer that sends an int8 for each value, and one float32 unit; then train with it."""
    is_one = isinstance(made, type) and issubclass(made, ps.quantizers.Quantizer)
    refuse_if(not is_one, f"Expected your class OneByte, a ps.quantizers.Quantizer; got {made!r}.")
    refuse_if(made.__module__.startswith("minips."), f"{made.__name__} is minips' own. Write one yourself.")
    kept = []
    for trial in range(12):
        shape = tuple(rng.integers(1, 9, int(rng.integers(1, 4))).tolist())
        x = (10 ** rng.uniform(-4, 3) * rng.normal(size=shape)).astype(np.float32)
        if trial == 0:
            x[...] = 0
        x.flat[0] = -3 * np.abs(x).max() if trial % 2 else x.flat[0]
        with case(f"With {described(x)}:"), np.errstate(divide="raise", invalid="raise", over="raise"):
            kept.append((x, *_sent(made, x)))
    for x, numbers, first in kept:
        changed = not np.array_equal(numbers, first)
        refuse_if(changed, f"A later call changed the numbers of {described(x)}. Make new arrays.")
    for _ in range(4):
        with case("For parts that another worker made:"):
            numbers = rng.integers(-127, 128, (3, int(rng.integers(1, 9)))).astype(np.int8)
            _decodes(made, {"numbers": numbers, "unit": rng.uniform(0.1, 9, 1).astype(np.float32)})
    for seed in (drawn_seed(rng) for _ in range(SEEDS)):
        with case(f"In a simulated run with seed {seed}:"):
            before = _run(BASE, seed)
            after = _run(dataclasses.replace(BASE, push=ps.Codec(quantizer=made())), seed)
            ratio, lost = after.bytes_sent / before.bytes_sent, float(before.accuracy or 0) - float(after.accuracy or 0)
            refuse_if(ratio > 0.4, f"the workers sent {ratio:.2f} of the bytes.")
            refuse_if(lost > 0.03, f"the accuracy fell from {before.accuracy:.3f} to {after.accuracy:.3f}.")
    return f"{ratio:.2f} of the bytes; accuracy {after.accuracy:.3f} instead of {before.accuracy:.3f} (seed {seed})."


def described(x: Array) -> str:
    """The shape and the range of an array in words."""
    return f"an array of shape {x.shape}, from {x.min():.3g} to {x.max():.3g}"


def _sent(made: Any, x: Array) -> tuple[Array, Array]:
    """Return the numbers that a quantizer sends, and a copy. Raises `Refused` if they are wrong."""
    before = x.copy()
    parts = made().encode(x, np.random.default_rng(0))
    refuse_if(not np.array_equal(x, before), "encode changed x. Do not change what you are given.")
    refuse_if(not isinstance(parts, dict) or set(parts) != {"numbers", "unit"}, f"encode returned {parts!r:.99}.")
    numbers, unit = np.asarray(parts["numbers"]), np.asarray(parts["unit"])
    refuse_if(numbers.dtype != np.int8, f"the numbers are {numbers.dtype}, not int8.")
    refuse_if(numbers.shape != x.shape, f"the numbers have the shape {numbers.shape}.")
    refuse_if(unit.dtype != np.float32 or unit.size != 1, f"the unit is {unit!r:.60}, not one float32.")
    largest, step = float(np.abs(x).max()), float(unit.reshape(-1)[0])
    refuse_if(largest and abs(step * 127 / largest - 1) > 1e-4, f"the unit is {step:.4g}, not {largest / 127:.4g}.")
    apart = float(np.abs(numbers * np.float64(step) - x).max())
    refuse_if(apart > 0.501 * step * bool(largest), f"a value is {apart / (step or 1):.2f} units from what was sent.")
    _decodes(made, parts)
    return numbers, numbers.copy()


def _decodes(made: Any, parts: dict[str, Array]) -> None:
    """Refuse a quantizer that does not multiply the numbers by the unit."""
    wanted = parts["numbers"] * np.float64(np.asarray(parts["unit"]).reshape(-1)[0])
    got = made().decode(copy.deepcopy(parts))
    refuse_if(getattr(got, "dtype", None) != np.float32, f"decode returned {getattr(got, 'dtype', type(got))}.")
    refuse_if(got.shape != wanted.shape, f"decode returned the shape {got.shape}, not {wanted.shape}.")
    near = np.allclose(got, wanted, rtol=1e-5, atol=0)
    refuse_if(not near, f"decode returned {got.reshape(-1)[:3]}…, expected {wanted.reshape(-1)[:3]}….")


def _run(config: ps.Config, seed: int) -> ps.Run:
    """Train on the digits."""
    problem = ps.SoftmaxRegression(*ps.datasets.digits())
    return ps.train(problem, dataclasses.replace(config, seed=seed), engine=ps.Simulated())


@asks(
    "train.3",
    "run.bytes_sent counts the bytes that all workers sent in the whole run. In how many pushes did they send them?",
    "run.updates counts the applied pushes. A run may have been stopped early, so steps × workers can be wrong.",
    "Divide two attributes of the run. The result may be a fraction of a byte: do not round it.",
)
def bytes_per_push(function: Any, rng: np.random.Generator) -> str:
    """Write bytes_per_push, a function of a run: the mean number of bytes that a worker sends for one push."""
    refuse_if(not callable(function), f"Expected a function of a run, got a {type(function).__name__}.")
    for _ in range(3):
        problem = ps.SoftmaxRegression(*ps.datasets.synthetic(rows=200, features=int(rng.integers(5, 40)), classes=3))
        config = ps.Config(workers=int(rng.integers(1, 6)), steps=int(rng.integers(4, 9)), transport="inproc")
        whole = ps.train(problem, config, engine=ps.Simulated())
        pushes = int(rng.integers(1, config.steps))  # fewer than steps, and not whole bytes per push
        sent = int(whole.bytes_sent / whole.updates) * pushes + int(rng.integers(1, pushes + 1))
        stopped = dataclasses.replace(whole, updates=pushes, bytes_sent=sent, stopped=True)
        left = dataclasses.replace(stopped, updates=3 * pushes, bytes_sent=3 * sent + 1, stopped=False)
        for run, what in ((whole, ""), (stopped, " (stopped early)"), (left, " (some workers left)")):
            with case(f"For {run.bytes_sent} bytes in {run.updates} pushes{what}"):
                equals(function(run), run.bytes_sent / run.updates)
    return "The result is right for complete runs and for runs that applied fewer pushes than planned."
