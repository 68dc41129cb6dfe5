"""Lesson 04: squeeze bytes."""

import math
import zlib
from typing import Any

import numpy as np

import minips as ps
from minips.lab.course.exercises import are_two, asks, case, conforms, number, refuse_if, round_trip, trains
from minips.lab.course.questions import Option, question, sentence

question(
    "04.1",
    "How much of the gradient's 400 000 bytes does LZ4 leave?",
    Option("about half", lambda TODO: False, "TODO"),
    Option("about nine tenths", lambda TODO: False, "TODO"),
    Option(
        "all of them",
        lambda TODO: False,
        "LZ4 saves only where a piece of four bytes or more occurs again nearby. Three of the four bytes of "
        "each number are as good as random, so that hardly ever happens.",
    ),
    expected="all of them",
    otherwise="TODO",
    telling=[],
)

question(
    "04.2",
    "Which of the two trains in much less time with LZ4?",
    Option("both", lambda TODO: False, "TODO"),
    Option(
        "only yes or no",
        lambda TODO: False,
        "Where the answer to a question is no for all eight images of a batch, its ten gradients are zero: "
        "long runs of zeros, which LZ4 finds. In the dense problem no value is zero. On a link this slow, "
        "bytes are time.",
    ),
    Option("only dense", lambda TODO: False, "TODO"),
    Option("neither: LZ4 costs time", lambda TODO: False, "TODO"),
    expected="only yes or no",
    otherwise="TODO",
    telling=[],
)

sentence("04.1", "LZ4 leaves {left:.2f} of the bytes.", expect="left > 0.99")

sentence("04.2", "Of {count:,} pieces {again:,} had occurred before: {share:.2%}.", expect="share < 0.01")

sentence(
    "04.3",
    "The highest byte needs {top:.1f} bits, each of the others {rest:.1f} or more. All four together: "
    "{all:.2f} of the bytes, if each byte is coded independently.",
    expect="rest > 7.5 and top < 4",
)

sentence(
    "04.4",
    "Byte {number}: at least {H:.3f} bits by Shannon's formula, {needed:.3f} by Huffman's code: pass.",
    expect="H <= needed < H + 1",
)

sentence("04.5", "zlib needs {zlib:.2f} bits for byte 3, our code {ours:.2f}: pass.", expect="abs(zlib - ours) < 0.1")

sentence("04.6", "LZ4 leaves {before:.2f} without the shuffle and {after:.2f} with it.", expect="after < 0.95 < before")

sentence(
    "04.7",
    "Of float32 made float64, 29 of 64 bits are always zero, so {limit:.2f} could be left. LZ4 leaves "
    "{lz4:.2f}, the best of the others ({best}) {least:.2f}.",
    expect="lz4 > limit",
)

sentence(
    "04.8",
    "zlib leaves {text:.1f} of the text. And that is still {array:.1f} times the array.",
    expect="text < 0.5 and array > 2",
)

sentence(
    "04.9",
    "The same compressor, zlib, with other bytes: the break-even moves by a factor of {factor:.0f}.",
    expect="factor > 5",
    timed=True,
)

sentence(
    "04.10",
    "LZ4 leaves {dense:.0%} of the bytes that the workers send for dense, and {yes:.0%} for yes or no.",
    expect="dense > 0.95 and yes < 0.3",
)

sentence(
    "04.11",
    "The run takes {dense:.0%} of the time for dense, and {yes:.0%} for yes or no.",
    expect="dense > 0.8 and yes < 0.8",
    timed=True,
)


@asks(
    "04.1",
    "Write down two times until everything has arrived: sent as it is, and compressed. At the break-even they are "
    "equal. What is the bandwidth then?",
    "As it is: 8 · before / bandwidth. Compressed: seconds + 8 · after / bandwidth. before and after are bytes.",
    "Solve for the bandwidth: saved bits over spent seconds. Two cases need care: nothing is saved, and no time "
    "is spent.",
)
def break_even(function: Any, rng: np.random.Generator) -> str:
    """Write break_even, of before, after and seconds: the bandwidth, in bit/s, below which compression pays."""
    refuse_if(not callable(function), f"Expected the function break_even, got {function!r}.")
    for _ in range(20):
        before = int(10 ** rng.uniform(2, 8))
        after, seconds = int(before * rng.uniform(0.05, 0.95)), float(10 ** rng.uniform(-6, 0))
        with case(f"For {before} → {after} bytes in {seconds:.2g} s:"):
            answer = number(function(before, after, seconds))
            refuse_if(not 0 < answer < math.inf, f"it returned {answer} bit/s; expected a finite bandwidth above 0.")
            plain, squeezed = 8 * before / answer, seconds + 8 * after / answer
            times = f"{plain:.4g} s as they are and {squeezed:.4g} s compressed"
            as_long = abs(plain - squeezed) <= 0.01 * seconds
            refuse_if(not as_long, f"it returned {answer:.4g} bit/s. But there the bytes need {times}.")
    for before, after in ((1000, 1000), (1000, 1004), (0, 0)):
        with case(f"For {before} → {after} bytes in 0.01 s:"):
            answer = number(function(before, after, 0.01))
            refuse_if(answer != 0, f"it returned {answer:.4g} bit/s. Nothing is saved, so it is 0.")
    with case("For 1000 → 500 bytes in 0 s:"):
        answer = number(function(1000, 500, 0.0))
        refuse_if(answer != math.inf, f"it returned {answer:.4g}; it always pays: math.inf.")
    return "Right on both sides of twenty random break-evens, and at the edges."


@asks(
    "04.2",
    "np.frombuffer(buffer, np.uint8).reshape(-1, 4).T.tobytes() is the shuffle. How do you turn that back?",
    "A frame need not be a multiple of 4 bytes long. Shuffle the whole values, and hang the last 1 to 3 bytes on.",
    "Turning back is the same with the other shape: four rows become four columns. How many bytes belong to "
    "whole values?",
)
def shuffled(mine: Any, rng: np.random.Generator) -> str:
    """Write a compressor that puts first all the first bytes of the 4-byte values, then all the second, and so on."""
    conforms(mine, ps.Compressor, "Shuffled()")
    for _ in range(4):
        count, scale = int(rng.integers(20_000, 60_000)), float(10 ** rng.uniform(-4, 2))
        data = (scale * rng.normal(size=count)).astype("f4").tobytes()
        what = f"{count} normal float32 values of size {scale:.2g}"
        _beats_zlib(what, len(mine.compress(data)), len(ps.Zlib().compress(data)), share=0.97)
    for length in (4001, 4002, 4003):
        data = rng.bytes(8).ljust(length, b"\x07")[:length]
        back = bytes(mine.decompress(mine.compress(data), length))
        refuse_if(back != data, f"A frame of {length} bytes, which is no multiple of 4, came back as other bytes.")
    trains(ps.Codec(compressor=mine), rng)
    return "It keeps the contract, beats zlib alone on floats, and two spawned workers trained with it."


@asks(
    "04.3",
    "zlib does not know that the positions are sorted. You do. What is small about sorted numbers?",
    "np.diff(positions) are the gaps: small numbers, with many zero bytes. What else does the receiver need?",
    "The first position is a gap too, from 0. The inverse of differences is a running sum; mind its dtype.",
)
def positions(pair: Any, rng: np.random.Generator) -> str:
    """Squeeze the sorted positions of the largest values: at most 0.9 of what zlib makes of them."""
    are_two(pair, "squeeze", "unsqueeze")
    for _ in range(5):
        values = int(rng.integers(200_000, 2_000_000))
        count = int(values * rng.uniform(0.005, 0.02))
        drawn = np.sort(rng.choice(values, count, replace=False)).astype(np.uint32)
        with case(f"For {count} positions among {values} values:"):
            size = round_trip(pair, "squeeze", drawn)
        _beats_zlib(f"{count} positions among {values} values", size, len(zlib.compress(drawn.tobytes())), share=0.9)
    for few in ([], [int(rng.integers(1, 2**32))], [0], [0, 1, 2, 3], [7, 2**31 + 5, 2**32 - 1]):
        with case(f"For {len(few)} positions, {few}:"):
            round_trip(pair, "squeeze", np.array(few, np.uint32))
    return "Every list of positions came back to the bit, and the long ones became smaller than by zlib alone."


def _beats_zlib(what: str, size: int, by_zlib: int, share: float) -> None:
    asked = f"zlib alone makes {by_zlib} of them, and {share:g} of that is asked for"
    refuse_if(size > share * by_zlib, f"{what} became {size} bytes; {asked}.")
