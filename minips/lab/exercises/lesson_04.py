"""Lesson 04: squeeze bytes."""

import zlib
from typing import Any

import numpy as np

from minips import datasets
from minips.core.codec import Codec
from minips.core.config import Config
from minips.engines import Processes, Threads
from minips.engines.train import train
from minips.lab.exercises.base import Refused, asks, conforms, fresh_seed, refuse_if
from minips.problems import SoftmaxRegression
from minips.stage import Array
from minips.stages.compressors import Compressor, Zlib
from minips.testing.base import same_bits


@asks(
    "04.1",
    "Write break_even(before, after, seconds): the bandwidth, in bits per second, below which compression pays.",
    "Write down two times until everything has arrived: sent as it is, and compressed. At the break-even they are "
    "equal. What is the bandwidth then?",
    "As it is: 8 · before / bandwidth. Compressed: seconds + 8 · after / bandwidth. before and after are bytes.",
    "Solve for the bandwidth: saved bits over spent seconds. Two cases need care: nothing is saved, and no time "
    "is spent.",
)
def break_even(function: Any) -> str:
    """Just below the answer compressing must be faster, just above it slower: random sizes and times, and edges."""
    refuse_if(not callable(function), f"Expected the function break_even, got {function!r}.")
    rng = np.random.default_rng()
    for _ in range(20):
        before = int(10 ** rng.uniform(2, 8))
        after, seconds = int(before * rng.uniform(0.05, 0.95)), float(10 ** rng.uniform(-6, 0))
        answer = _number(function(before, after, seconds), what := f"For {before} → {after} bytes in {seconds:.2g} s")
        refuse_if(
            not 0 < answer < float("inf"), f"{what}: it returned {answer} bit/s; expected a finite bandwidth above 0."
        )
        for side, pays in ((0.99, True), (1.01, False)):
            bandwidth = answer * side
            plain, squeezed = 8 * before / bandwidth, seconds + 8 * after / bandwidth
            refuse_if(
                (squeezed < plain) != pays,
                f"{what}: it returned {answer:.4g} bit/s. But at {bandwidth:.4g} bit/s the bytes need {plain:.4g} s as "
                f"they are and {squeezed:.4g} s compressed.",
            )
    for before, after in ((1000, 1000), (1000, 1004), (0, 0)):
        answer = _number(function(before, after, 0.01), what := f"For {before} → {after} bytes in 0.01 s")
        refuse_if(answer != 0, f"{what}: it returned {answer:.4g} bit/s. Nothing is saved, so it is 0.")
    answer = _number(function(1000, 500, 0.0), "For 1000 → 500 bytes in 0 s")
    refuse_if(
        answer != float("inf"), f"For 1000 → 500 bytes in 0 s: it returned {answer:.4g}; it always pays: math.inf."
    )
    return "Right on both sides of twenty random break-evens, and at the edges."


def _number(answer: Any, what: str) -> float:
    try:
        return float(answer)
    except (TypeError, ValueError):
        raise Refused(f"{what}: expected a number, got {answer!r}.") from None


@asks(
    "04.2",
    "Write a compressor that puts first all the first bytes of the 4-byte values, then all the second ones, and so on.",
    "np.frombuffer(buffer, np.uint8).reshape(-1, 4).T.tobytes() is the shuffle. How do you turn that back?",
    "A frame need not be a multiple of 4 bytes long. Shuffle the whole values, and hang the last 1 to 3 bytes on.",
    "Turning back is the same with the other shape: four rows become four columns. How many bytes belong to "
    "whole values?",
)
def shuffled(mine: Any) -> str:
    """The contract; fresh float32 values must become smaller than by zlib alone; then spawned workers, to the bit."""
    conforms(mine, Compressor, "Shuffled()")
    rng, plain = np.random.default_rng(), Zlib()
    for _ in range(4):
        count, scale = int(rng.integers(20_000, 60_000)), float(10 ** rng.uniform(-4, 2))
        data = (scale * rng.normal(size=count)).astype("f4").tobytes()
        size, without = len(mine.compress(data)), len(plain.compress(data))
        refuse_if(
            size > 0.97 * without,
            f"{count} normal float32 values of size {scale:.2g} became {size} bytes; zlib alone makes {without} of "
            f"them, and 0.97 of that is asked for.",
        )
    for length in (4001, 4002, 4003):
        data = rng.bytes(8).ljust(length, b"\x07")[:length]
        back = bytes(mine.decompress(mine.compress(data), length))
        refuse_if(back != data, f"A frame of {length} bytes, which is no multiple of 4, came back as other bytes.")
    seed, codec = fresh_seed(), Codec(compressor=mine)
    problem = SoftmaxRegression(*datasets.synthetic(rows=120, features=6, classes=3))
    run = train(problem, Config(workers=2, steps=5, seed=seed, push=codec, pull=codec), engine=Processes())
    wanted = train(problem, Config(workers=2, steps=5, seed=seed), engine=Threads())
    alike = all(same_bits(run.params[name], p) for name, p in wanted.params.items())
    refuse_if(not alike, f"Two spawned workers ended with other parameters than without a compressor, seed {seed}.")
    return "It keeps the contract, beats zlib alone on floats, and two spawned workers trained with it."


@asks(
    "04.3",
    "Squeeze the sorted positions of the largest values: at most 0.9 of what zlib makes of them.",
    "zlib does not know that the positions are sorted. You do. What is small about sorted numbers?",
    "np.diff(positions) are the gaps: small numbers, with many zero bytes. What else does the receiver need?",
    "The first position is a gap too, from 0. The inverse of differences is a running sum; mind its dtype.",
)
def positions(pair: Any) -> str:
    """Random sorted positions there and back, and smaller; none, one, neighbours and the largest that there is."""
    refuse_if(
        not (isinstance(pair, tuple) and len(pair) == 2 and all(map(callable, pair))),
        f"Expected the pair (squeeze, unsqueeze), got {pair!r}.",
    )
    rng = np.random.default_rng()
    for _ in range(5):
        values = int(rng.integers(200_000, 2_000_000))
        count = int(values * rng.uniform(0.005, 0.02))
        sorted_ = np.sort(rng.choice(values, count, replace=False)).astype(np.uint32)
        size, without = _there_and_back(pair, sorted_), len(zlib.compress(sorted_.tobytes()))
        refuse_if(
            size > 0.9 * without,
            f"{count} positions among {values} values became {size} bytes; zlib alone makes {without}, and 0.9 of "
            "that is asked for.",
        )
    for few in ([], [int(rng.integers(1, 2**32))], [0], [0, 1, 2, 3], [7, 2**31 + 5, 2**32 - 1]):
        _there_and_back(pair, np.array(few, np.uint32))
    return "Every list of positions came back to the bit, and the long ones became smaller than by zlib alone."


def _there_and_back(pair: Any, sorted_: Array) -> int:
    squeeze, unsqueeze = pair
    what = f"For {sorted_.size} positions" + (f", {sorted_.tolist()}" if sorted_.size < 5 else "")
    before = sorted_.copy()
    try:
        packed = squeeze(sorted_)
        got = unsqueeze(bytes(packed))
    except Exception as error:
        raise Refused(f"{what}: it stopped with {type(error).__name__}: {error}") from None
    refuse_if(not same_bits(sorted_, before), f"{what}: squeeze changed the array.")
    refuse_if(
        not isinstance(packed, bytes | bytearray), f"{what}: squeeze returned a {type(packed).__name__}, not bytes."
    )
    refuse_if(not isinstance(got, np.ndarray), f"{what}: unsqueeze returned a {type(got).__name__}, not an array.")
    refuse_if(not same_bits(got, sorted_), f"{what}: other positions came back, or another dtype ({got.dtype}).")
    return len(packed)
