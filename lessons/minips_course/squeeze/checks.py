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
    for trial in range(40):
        before, workers = int(10 ** rng.uniform(1, 10)), 1 if trial < 5 else int(10 ** rng.uniform(0, 4))
        after = before - max(int(before * 10 ** rng.uniform(-6, 0)), 1)  # of some frames almost all is left
        there, back = (float(10 ** rng.uniform(-8, 2)) for _ in range(2))
        for compress, decompress in ((there, back), (0.0, back), (there, 0.0), (back, there)):
            with case(_round(before, after, compress, decompress, workers)):
                answer = number(function(before, after, compress, decompress, workers))
                refuse_if(not 0 < answer < math.inf, f"it returned {answer} bit/s; expected a finite one above 0.")
                spent = compress + workers * decompress
                plain, squeezed = 8 * before / answer, spent + 8 * after / answer
                times = f"{plain:.7g} s as they are and {squeezed:.7g} s compressed"
                as_long = math.isclose(answer, 8 * (before - after) / spent, rel_tol=1e-9)
                refuse_if(not as_long, f"it returned {answer:.7g} bit/s. But there the round takes {times}.")
                if workers == 1:
                    same = math.isclose(number(function(before, after, compress, decompress)), answer, rel_tol=1e-9)
                    refuse_if(not same, "without workers it must return the same as with one worker.")
    for before, after in ((1000, 1000), (1000, 1004), (1000, 5000), (0, 0), (0, 13)):
        for compress, decompress in ((0.01, 0.01), (0.0, 0.01), (0.01, 0.0), (0.0, 0.0)):
            for workers in (1, int(rng.integers(2, 65))):
                with case(_round(before, after, compress, decompress, workers)):
                    answer = number(function(before, after, compress, decompress, workers))
                    refuse_if(answer != 0, f"it returned {answer:.4g} bit/s. Nothing is saved, so expected 0.")
    for before, after, workers in ((1000, 500, 4), (1000, 999, 1), (1000, 0, 64), (1000, 0, 1)):
        with case(_round(before, after, 0.0, 0.0, workers)):
            answer = number(function(before, after, 0.0, 0.0, workers))
            refuse_if(answer != math.inf, f"it returned {answer:.4g}. It always pays here, so expected math.inf.")
    return "It is right for random break-evens with 1 to 10,000 workers, and in the edge cases."


def _round(before: int, after: int, compress: float, decompress: float, workers: int) -> str:
    return f"For {before} → {after} bytes, {compress:.2g} s there, {decompress:.2g} s back and {workers} workers:"


@asks(
    "squeeze.2",
    "np.frombuffer(buffer, np.uint8).reshape(-1, 4).T.tobytes() is the shuffle. How do you turn that back?",
    "A frame need not be a multiple of 4 bytes long. Shuffle the whole values, and append the last 1 to 3 bytes.",
    "To turn it back, do the same with the other shape: four rows become four columns. How many bytes belong to "
    "whole values?",
    beside=True,
)
def shuffled(mine: Any, rng: np.random.Generator) -> str:
    """Write a compressor that sends the first byte of every 4-byte value, then the second byte of each, and so on."""
    conforms(mine, ps.Compressor, "Shuffled()")
    for rest in range(4):
        count, scale = int(rng.integers(20_000, 60_000)), float(10 ** rng.uniform(-4, 2))
        data = (scale * rng.normal(size=count)).astype("f4").tobytes() + rng.bytes(rest)
        what = f"{count} normal float32 values of size {scale:.2g} and {rest} bytes more"
        _beats_zlib(what, len(mine.compress(data)), len(ps.Zlib().compress(data)), share=0.97)
        data = _planes_of_words(rng) + rng.bytes(rest)
        what = f"{len(data)} bytes, whose every fourth byte belongs to the same words,"
        _beats_zlib(what, len(mine.compress(data)), len(ps.Zlib().compress(data)), share=0.19)
    _restores_in_any_order(mine, rng)
    trains(ps.Codec(compressor=mine), rng)
    return "It keeps the contract, beats zlib alone on floats, and two spawned workers trained with it."


def _planes_of_words(rng: np.random.Generator) -> bytes:
    """Return 4-byte values whose first bytes, one after another, are random words of 9 bytes; so are their second ones,
    and so on. Only where these bytes are together does a compressor find a word again.
    """
    words = rng.integers(0, 256, (64, 9), np.uint8)
    planes = words[rng.integers(64, size=(4, int(rng.integers(3000, 9000))))].reshape(4, -1)
    return planes.T.tobytes()


def _restores_in_any_order(mine: ps.Compressor, rng: np.random.Generator) -> None:
    """Refuse a compressor unless it restores many frames after it has compressed all of them."""
    frames = [
        rng.bytes(min(length, 20)).ljust(length, b"\x07") for length in (0, 1, 2, 3, 4, 5, *range(4001, 4009)) * 2
    ]
    for data, packed in [(data, mine.compress(data)) for data in frames]:
        back = bytes(mine.decompress(packed, len(data)))
        refuse_if(
            back != data, f"A frame of {len(data)} bytes came back as other bytes, when others had been compressed."
        )


def _beats_zlib(what: str, size: int, by_zlib: int, share: float) -> None:
    asked = f"zlib alone makes {by_zlib} of them, and at most {share:g} of that is allowed"
    refuse_if(size > share * by_zlib, f"{what} became {size} bytes; {asked}.")
