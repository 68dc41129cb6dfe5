"""The exercises of "Where compression pays"."""

import math
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

import minips as ps
from minips.lab.course.exercises import Refused, asks, case, conforms, number, refuse_if, unaided
from minips.stage import Array
from minips.stages.quantizers import base
from minips.testing.base import described
from minips_course.pays.timing import Way

TRIALS = 72
"""Pairs of trainings that the check draws."""


@asks(
    "pays.3",
    "A training's seconds are a + b / B, for B in bit/s. Which of a way's numbers are in a, and which in b?",
    "Compute a and b of both ways. At the bandwidth that is asked for, both trainings take equally long: solve for B.",
    "For each way: a = steps * (gradient + encode + workers * decode + answer + 2 * latency), and b = steps * 8 * the "
    "bytes that the links carry. Then B is the b that is saved, over the a that is added. What if one of the two is "
    "not above 0?",
)
def pays_below(function: Any, rng: np.random.Generator) -> str:
    """Write the bandwidth below which a training is sooner at its aim with a codec than with exact gradients."""
    refuse_if(not callable(function), f"Expected the function pays_below, got {function!r}.")
    for trial in range(TRIALS):
        way, exact, workers, latency = _trainings(rng, trial)
        (fixed, bits), (fixed_exact, bits_exact) = (_line(one, workers, latency) for one in (way, exact))
        saved, added = bits_exact - bits, fixed - fixed_exact
        wanted = 0.0 if saved <= 0 else saved / added if added > 0 else float("inf")
        with case(f"way: {_shown(way)}\nexact: {_shown(exact)}\n{workers} workers, latency {latency:.3g} s:"):
            got = number(unaided(function, way, exact, workers, latency))
            if 0 < got < float("inf") and 0 < wanted < float("inf"):
                there, plain = fixed + bits / got, fixed_exact + bits_exact / got
                words = f"but at that bandwidth they take {there:.6g} s and {plain:.6g} s."
            else:
                words = f"expected {wanted:.7g}."
            near = got == wanted or math.isclose(got, wanted, rel_tol=1e-6)
            refuse_if(not near, f"it returned {got:.7g} bit/s; {words}")
    return (
        f"Right for {TRIALS} pairs of trainings: with codecs that pay below a bandwidth, with no link, with each link."
    )


def _shown(way: Way) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in way._asdict().items())


def _line(way: Way, workers: int, latency: float) -> tuple[float, float]:
    """A training's seconds at an infinite bandwidth, and the bits that its links carry one after another."""
    processors = way.gradient + way.encode + workers * way.decode + way.answer
    most = max(workers * way.pushed + way.pulled, way.pushed + workers * way.pulled)
    return way.steps * (processors + 2 * latency), way.steps * 8 * most


def _trainings(rng: np.random.Generator, trial: int) -> tuple[Way, Way, int, float]:
    """Draw two trainings: most of them pay below some bandwidth, every sixth never pays, and every sixth always."""
    kind = {4: "never", 5: "always"}.get(trial % 6, "below")
    while True:
        workers = int(rng.choice([1, 2, 4, int(rng.integers(3, 65))]))
        latency = 0.0 if trial % 5 == 0 else float(10 ** rng.uniform(-6, -2))
        gradient = float(10 ** rng.uniform(-5, -2))
        way, exact = (
            Way(
                float(rng.integers(25, 5000)) / 5,
                gradient,
                *(float(10 ** rng.uniform(-5, -2)), float(rng.integers(10**4, 10**7))),
                *(float(10 ** rng.uniform(-5, -2)), float(10 ** rng.uniform(-5, -2))),
                float(rng.integers(10**4, 10**7)),
            )
            for _ in range(2)
        )
        if kind == "never" and trial % 12 == 4:  # it saves nothing
            exact = way._replace(encode=way.encode / 2)
        (fixed, bits), (fixed_exact, bits_exact) = (_line(one, workers, latency) for one in (way, exact))
        saved, added = (bits_exact - bits) / bits_exact, (fixed - fixed_exact) / fixed_exact
        if abs(added) < 1e-3 or 0 < abs(saved) < 1e-3:
            continue
        if kind == ("never" if saved <= 0 < added else "always" if added < 0 < saved else "below" if added > 0 else ""):
            return way, exact, workers, latency


COPIES = 10
"""The most time that encode and decode together may take, as a multiple of the time of two copies."""


@asks(
    "pays.2",
    "A float32 has 1 sign, 8 exponent and 23 mantissa bits. Which 16 of the 32 are the most important ones? You need "
    "no arithmetic, only shifts.",
    "x.view('u4') reads the same 32 bits as a whole number, and .view('f4') reads them as a float again.",
    "To encode, view float32 as whole numbers, shift them down, and convert to 'u2'. To decode, convert to 'u4', shift "
    "up, and view as floats. np.asarray turns float64 into float32, and a single number into an array.",
    beside=True,
)
def sixteen_bits(mine: Any, rng: np.random.Generator) -> str:
    """Write a quantizer with 16 bits a value that keeps tiny and huge values, and takes little longer than copies."""
    conforms(mine, ps.Quantizer, "Half()")
    for x in _arrays(rng):
        _keeps_values(mine, x)
    x = (3e-4 * rng.normal(size=200_000)).astype(np.float32)
    _keeps_values(mine, x)
    ways = (lambda: x.copy().copy(), lambda: mine.decode(mine.encode(x, None)))
    copied, took = np.min([[_seconds(way) for way in ways] for _ in range(15)], axis=0)
    refuse_if(
        took > COPIES * copied,
        f"{x.size} values took {took / copied:.0f} times as long, there and back, as two copies of them; at most "
        f"{COPIES} times are allowed.",
    )
    return f"16 bits a value, from 1e-30 to 1e30, in {took / copied:.1f} times the time of two copies."


def _arrays(rng: np.random.Generator) -> Iterator[Array]:
    """Yield arrays of both float types, of all shapes and layouts, with values from 1e-30 to 1e30 side by side."""
    for dtype in ("f4", "f8"):
        for shape in ((int(rng.integers(400, 800)), 5), (int(rng.integers(5, 40)),), (3, 4, 2), (1,), (), (0, 3)):
            one, many = 10.0 ** rng.uniform(-30, 29), 10.0 ** rng.uniform(-30, 29, size=shape)
            for scale in (1.0, one, many, 1e-30, 1e29):
                yield np.asarray(scale * rng.choice([-1, 1], size=shape) * rng.uniform(1, 10, size=shape), dtype)
        square = (one * rng.normal(size=(6, 9))).astype(dtype)
        square[0] = 0
        yield from (square, square.T, square[::-1], square[::2, 1::3])


def _keeps_values(mine: ps.Quantizer, x: Array) -> None:
    """Refuse a quantizer that sends more than 16 bits a value of x, or returns a value that is off by too much."""
    with case(f"For {described(x)}, up to {np.abs(x).max(initial=0):.2g} large:"):
        parts = unaided(mine.encode, x, np.random.default_rng(0), helpers=base)
        nbytes = sum(array.nbytes for array in parts.values())
        refuse_if(nbytes > 2 * x.size, f"the parts have {nbytes} bytes; 16 bits a value are {2 * x.size}.")
        back = unaided(mine.decode, parts, helpers=base)
        off = np.abs(back.astype(float) - x)
        wrong = ~(off <= np.abs(x) / 128)
        if wrong.any():
            was, came = float(x[wrong][0]), float(back[wrong][0])
            raise Refused(f"{was:.6g} came back as {came:.6g}; a value may be off by 1/128 of itself.")


def _seconds(work: Any) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
