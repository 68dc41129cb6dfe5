"""The exercises of "Where compression pays"."""

import time
from typing import Any

import numpy as np

import minips as ps
from minips.lab.course.exercises import asks, case, conforms, equals, refuse_if, unaided


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
    for trial in range(40):
        workers, bits = int(rng.integers(2, 65)), int(rng.choice([1, 2, 4, 8, 16, 32]))
        megabytes, gigabits = float(rng.uniform(1, 200)), float(rng.uniform(0.1, 100))
        latency = 0.0 if trial < 20 else float(10 ** rng.uniform(-5, -2))
        extra = 0 if trial < 10 or 20 <= trial < 30 else int(rng.integers(100, 10**6))
        data = f"{megabytes:.1f} MB at {bits} bits a value, {extra} extra bytes a message"
        with case(f"A ring of {workers}, {data}, {gigabits:.2f} Gbit/s, latency {latency:.2g} s:"):
            nbytes = megabytes * 1e6 * bits / 32 / workers + extra
            wanted = 2 * (workers - 1) * (latency + 8 * nbytes / (gigabits * 1e9))
            equals(unaided(function, workers, megabytes, bits, gigabits, latency, extra), wanted, " s")
    return "Right for 40 random rings, with and without latency and extra bytes."


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
    for dtype in (np.float32, np.float64):
        for scale in (1.0, *(10.0 ** rng.uniform(-30, 30, 6))):
            x = np.asarray(scale * rng.normal(size=(int(rng.integers(200, 400)), 5)), dtype)
            with case(f"For {x.size} values of {x.dtype}, about {scale:.2g} large:"):
                parts = mine.encode(x, np.random.default_rng(0))
                nbytes = sum(array.nbytes for array in parts.values())
                refuse_if(nbytes > 2 * x.size, f"the parts have {nbytes} bytes; 16 bits a value are {2 * x.size}.")
                back = mine.decode(parts)
                off = np.abs(back.astype(float) - x) / np.abs(x)
                worst = np.unravel_index(off.argmax(), x.shape)
                refuse_if(
                    not off.max() <= 1 / 128,
                    f"{x[worst]:.6g} came back as {back[worst]:.6g}; a value may be off by 1/128 of itself.",
                )
    x = (3e-4 * rng.normal(size=200_000)).astype(np.float32)
    ways = (lambda: x.copy().copy(), lambda: mine.decode(mine.encode(x, None)))
    copied, took = np.median([[_seconds(way) for way in ways] for _ in range(15)], axis=0)
    refuse_if(
        took > COPIES * copied,
        f"{x.size} values took {took / copied:.0f} times as long, there and back, as two copies of them; at most "
        f"{COPIES} times are allowed.",
    )
    return f"16 bits a value, from 1e-30 to 1e30, in {took / copied:.1f} times the time of two copies."


def _seconds(work: Any) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
