"""The exercises of "Squeeze bytes"."""

import math
from typing import Any

import numpy as np

import minips as ps
from minips.lab.course.exercises import asks, case, conforms, number, refuse_if, trains


@asks(
    "squeeze.1",
    "Write down the time until everything has arrived, without compression and with it. At the break-even these two "
    "times are equal. What is the bandwidth then?",
    "All workers compress at the same time, so that counts once. Each has its own line, so sending counts once. "
    "What happens once for each worker?",
    "Solve for the bandwidth: bits saved divided by seconds spent. Handle two cases first: nothing is saved, and no "
    "time is spent.",
)
def break_even(function: Any, rng: np.random.Generator) -> str:
    """Make break_even count the workers, and return the bandwidth in bit/s below which compression pays."""
    refuse_if(not callable(function), f"Expected the function break_even, got {function!r}.")
    for trial in range(20):
        before, workers = int(10 ** rng.uniform(2, 8)), 1 if trial < 5 else int(rng.integers(2, 65))
        after = int(before * rng.uniform(0.05, 0.95))
        there, back = (float(10 ** rng.uniform(-6, 0)) for _ in range(2))
        with case(f"For {before} → {after} bytes, {there:.2g} s there, {back:.2g} s back and {workers} workers:"):
            answer = number(function(before, after, there, back, workers))
            refuse_if(not 0 < answer < math.inf, f"it returned {answer} bit/s; expected a finite bandwidth above 0.")
            spent = there + workers * back
            plain, squeezed = 8 * before / answer, spent + 8 * after / answer
            times = f"{plain:.4g} s as they are and {squeezed:.4g} s compressed"
            as_long = abs(plain - squeezed) <= 0.01 * spent
            refuse_if(not as_long, f"it returned {answer:.4g} bit/s. But there the round takes {times}.")
            if workers == 1:
                same = math.isclose(number(function(before, after, there, back)), answer, rel_tol=1e-9)
                refuse_if(not same, "without workers it must return the same as with one worker.")
    for before, after in ((1000, 1000), (1000, 1004), (0, 0)):
        for seconds in (0.01, 0.0):
            with case(f"For {before} → {after} bytes in {seconds:g} s there and back, 4 workers:"):
                answer = number(function(before, after, seconds, seconds, 4))
                refuse_if(answer != 0, f"it returned {answer:.4g} bit/s. Nothing is saved, so expected 0.")
    with case("For 1000 → 500 bytes in 0 s:"):
        answer = number(function(1000, 500, 0.0, 0.0, 4))
        refuse_if(answer != math.inf, f"it returned {answer:.4g}. Compression always pays here, so expected math.inf.")
    return "It is right for twenty random break-evens with 1 to 64 workers, and in the edge cases."


@asks(
    "squeeze.2",
    "np.frombuffer(buffer, np.uint8).reshape(-1, 4).T.tobytes() is the shuffle. How do you turn that back?",
    "A frame need not be a multiple of 4 bytes long. Shuffle the whole values, and append the last 1 to 3 bytes.",
    "To turn it back, do the same with the other shape: four rows become four columns. How many bytes belong to "
    "whole values?",
)
def shuffled(mine: Any, rng: np.random.Generator) -> str:
    """Write a compressor that sends the first byte of every 4-byte value, then the second byte of each, and so on."""
    conforms(mine, ps.Compressor, "Shuffled()")
    for _ in range(4):
        count, scale = int(rng.integers(20_000, 60_000)), float(10 ** rng.uniform(-4, 2))
        data = (scale * rng.normal(size=count)).astype("f4").tobytes()
        what = f"{count} normal float32 values of size {scale:.2g}"
        _beats_zlib(what, len(mine.compress(data)), len(ps.Zlib().compress(data)), share=0.97)
    for length in (4001, 4002, 4003):
        data = rng.bytes(8).ljust(length, b"\x07")[:length]
        back = bytes(mine.decompress(mine.compress(data), length))
        refuse_if(back != data, f"A frame of {length} bytes, not a multiple of 4, came back as different bytes.")
    trains(ps.Codec(compressor=mine), rng)
    return "It keeps the contract, beats zlib alone on floats, and two spawned workers trained with it."


def _beats_zlib(what: str, size: int, by_zlib: int, share: float) -> None:
    asked = f"zlib alone makes {by_zlib} of them, and at most {share:g} of that is allowed"
    refuse_if(size > share * by_zlib, f"{what} became {size} bytes; {asked}.")
