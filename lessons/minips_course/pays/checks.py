"""The exercises of "Where compression pays"."""

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

import minips as ps
from minips.lab.course.exercises import Refused, asks, case, conforms, equals, refuse_if, unaided
from minips.stage import Array
from minips.stages.quantizers import base
from minips.testing.base import described


@asks(
    "pays.1",
    "How many bits has a byte? How many bits has a gigabit, and how many bytes has a megabyte? Only one of these "
    "three numbers is not a power of ten.",
    "Follow one worker: how many messages does it send, one after another, and what does each message contain?",
    "First compute the bytes of one message, values and extra; then its seconds; then the seconds of all messages.",
)
def ring_seconds(function: Any, rng: np.random.Generator) -> str:
    """Mend the lecture's function with your own arithmetic: SI units, and latency and extra bytes for each message."""
    refuse_if(not callable(function), f"Expected the function ring_seconds, got {function!r}.")
    for trial in range(60):
        workers = (1, 2, 3)[trial % 3] if trial % 10 < 3 else int(10 ** rng.uniform(0, 3))
        bits = int(rng.choice([1, 2, 3, 4, 8, 16, 32, 64]))
        megabytes, gigabits = float(10 ** rng.uniform(-3, 4)), float(10 ** rng.uniform(-3, 3))
        latency = 0.0 if trial < 20 else float(10 ** rng.uniform(-7, 0))
        extra = 0 if trial < 10 or 20 <= trial < 30 else int(10 ** rng.uniform(0, 7))
        data = f"{megabytes:.4g} MB at {bits} bits a value, {extra} extra bytes a message"
        with case(f"A ring of {workers}, {data}, {gigabits:.4g} Gbit/s, latency {latency:.2g} s:"):
            nbytes = megabytes * 1e6 * bits / 32 / workers + extra
            wanted = 2 * (workers - 1) * (latency + 8 * nbytes / (gigabits * 1e9))
            equals(unaided(function, workers, megabytes, bits, gigabits, latency, extra), wanted, " s")
    return "Right for 60 random rings, with and without latency and extra bytes."


COPIES = 10
"""The most time that encode and decode together may take, as a multiple of the time of two copies."""


@asks(
    "pays.2",
    "A float32 has 1 sign, 8 exponent and 23 mantissa bits. Which 16 of the 32 are the most important ones? You need "
    "no arithmetic, only shifts.",
    "x.view('u4') reads the same 32 bits as a whole number, and .view('f4') reads them as a float again.",
    "To encode, view float32 as whole numbers, shift them down, and convert to 'u2'. To decode, convert to 'u4', shift "
    "up, and view as floats. np.asarray turns float64 into float32, and a single number into an array.",
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
