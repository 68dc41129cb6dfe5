"""Lesson 07: squeeze bytes."""

import math
import zlib
from typing import Any

import numpy as np

import minips as ps
from minips.lab.course.exercises import are_two, asks, case, conforms, number, refuse_if, round_trip, trains
from minips.lab.course.questions import (
    Expected,
    Option,
    card,
    question,
    sentence,
    timed_estimate,
    timed_question,
    timed_sentence,
)

question(
    "07.1",
    "How much of the gradient's 400 000 bytes does LZ4 leave?",
    Option(
        "about half",
        lambda left: 0.3 <= left < 0.7,
        "Pieces of four bytes occur again and again, so every other one could be replaced by a note.",
    ),
    Option(
        "about nine tenths",
        lambda left: 0.8 <= left < 0.97,
        "Some pieces occur again nearby: the signs and exponents of neighbouring values are alike.",
    ),
    Expected(
        "all of them",
        lambda left: 0.99 < left < 1.05,
        "LZ4 saves only where a piece of four bytes or more occurs again nearby. Three of the four bytes of "
        "each number are as good as random, so that hardly ever happens.",
    ),
    otherwise="What LZ4 left lies between the options, or below them.",
)

timed_question(
    "07.2",
    "Which of the two trains in much less time with LZ4, below 0.75 of the time without it?",
    Option(
        "both of them",
        lambda dense, yes: 0 < dense < 0.75 and 0 < yes < 0.75,
        "LZ4 found enough repetition in the gradients and parameters of each problem, and bytes are time on this link.",
    ),
    Expected(
        "only yes or no",
        lambda dense, yes: 0 < yes < 0.75 <= dense,
        "Where the answer to a question is no for all eight images of a batch, its ten gradients are zero: "
        "long runs of zeros, which LZ4 finds. In a dense gradient hardly any value is zero. On a link this slow, "
        "bytes are time.",
    ),
    Option(
        "only dense",
        lambda dense, yes: 0 < dense < 0.75 <= yes,
        "LZ4 found repetition in the dense gradients, and the zeros of the other problem saved no time.",
    ),
    Option(
        "neither of them",
        lambda dense, yes: dense >= 0.75 and yes >= 0.75,
        "Whatever LZ4 saved, the link was so fast, or the machine so busy, that the bytes were not what took the time.",
    ),
    otherwise="One of the runs gave no time to compare.",
)

timed_estimate(
    "07.3",
    "Below which bandwidth does the best of the five compressors pay for the 8-bit codes, on this machine?",
    "Mbit/s",
    expected=(60, 3000),
    because="The best one saves about 90 000 bits. Compressing and decompressing 100 kB takes it between 0.03 and 1.5 "
    "thousandths of a second. The break-even is the one divided by the other.",
    otherwise="The best compressor was much slower here, or much faster, than the 0.03 to 1.5 thousandths of a second "
    "on which the text is built; or none saved anything.",
)

sentence("07.1", "LZ4 leaves {left:.2f} of the bytes.", expect="left > 0.99")

sentence(
    "07.2",
    "Of {count:,} pieces of the gradient {again:,} had occurred before: {share:.2%}. With the same signs and exponents "
    "and random mantissas it is {made:,}, with random bits {chance:,}.",
    expect="share < 0.01 and 0.75 < made / again < 1.33 and chance < 60",
)

sentence(
    "07.3",
    "The highest byte carries {top:.1f} bits; the others carry between {low:.2f} and {high:.2f}. All four together: "
    "{all:.2f} of the bytes, if each byte is coded independently.",
    expect="top < 4 and 7.5 < low <= high <= 8",
)

card(
    "07.4",
    "Byte {number}: at least {H:.3f} bits by Shannon's formula, {needed:.3f} by Huffman's code.",
    expect="H <= needed < H + 1",
)

card("07.5", "zlib needs {zlib:.2f} bits for byte 3, our code {ours:.2f}.", expect="abs(zlib - ours) < 0.1")

sentence(
    "07.6",
    "LZ4 leaves {before:.2f} without the shuffle and {after:.2f} with it.",
    expect="0.8 < after < 0.95 < before",
)

sentence(
    "07.7",
    "Of float32 made float64, 29 of 64 bits are always zero, so {limit:.2f} could be left. LZ4 leaves "
    "{lz4:.2f}, the best of the others ({best}) {least:.2f}.",
    expect="lz4 > limit and least < 0.65",
)

sentence(
    "07.8",
    "zlib leaves {text:.1f} of the text. And that is still {array:.1f} times the array.",
    expect="text < 0.5 and array > 2",
)

timed_sentence(
    "07.9",
    "The same compressor, zlib, with 1 % of the values in place of the codes: the break-even moves by a factor of "
    "{factor:.0f}.",
    expect="factor > 5",
)

sentence(
    "07.10",
    "{name}: LZ4 leaves {sent:.0%} of the bytes that the workers send, and {got:.0%} of those that they receive.",
    expect="sent > 0.95 if name == 'dense' else sent < 0.3 and got < 0.85",
)

timed_sentence(
    "07.11",
    "A step with LZ4 takes {dense:.0%} of the time for dense, and {yes:.0%} for yes or no (medians of 15 steps).",
    expect="dense > 0.9 and yes < 0.75",
)

timed_sentence(
    "07.12",
    "The 8-bit codes with {count} compressors: {best} pays below {fast:,.0f} Mbit/s (quartiles {low:,.0f} to "
    "{high:,.0f} of 15 repeats), zlib below {zlib:,.0f} ({zlib_low:,.0f} to {zlib_high:,.0f}). That is {ratio:.0f} "
    "times as fast a link.",
    expect="count == 5 and ratio > 4 and low > 60",
)

timed_sentence(
    "07.13",
    "{best} and the 8-bit codes, from the medians: one message alone, below {alone:,.0f} Mbit/s. Four workers, each "
    "with a slow line: {own:,.0f}. Four workers on the server's slow line: {shared:,.0f}. One message in blocks, "
    "if all the steps overlap: {blocks:,.0f}.",
    expect="own < alone < shared and blocks > alone",
)

sentence(
    "07.14",
    "Of the zeros between 1 % of the values, at most {zeros:.2f} is left. LZ4 leaves {lz4:.2f} or more of float32, "
    "positions and codes; Blosc, with its shuffle, {blosc:.2f} of float32. zlib leaves {eight:.2f} of the 8-bit codes "
    "and {four:.2f} of the 4-bit codes. Of the 1-bit signs the best of the compressors leaves {signs:.2f}.",
    expect="zeros < 0.1 and lz4 > 0.98 and 0.5 < blosc < 0.97 and four < eight < 0.97 and signs > 0.9",
)

sentence(
    "07.15",
    "Of {arrays} arrays of parameters {same} are the same to the last bit, with the compressor and without. That is "
    "what lossless means.",
    expect="same == arrays",
)

sentence(
    "07.16",
    "By the entropy of single bytes, {eight:.3f} of the 8-bit codes could be left, {four:.3f} of the 4-bit codes and "
    "{signs:.2f} of the signs. zstd leaves {zstd_eight:.3f} and {zstd_four:.3f} of the codes.",
    expect="eight <= zstd_eight < eight + 0.02 and four <= zstd_four < four + 0.02 and signs > 0.9",
)

timed_sentence(
    "07.17",
    "And float32, whose mantissas are random? {best} saves {saved:.0%}, and pays below {fast:,.0f} Mbit/s; zlib below "
    "{zlib:,.0f}.",
    expect="saved > 0.03 and fast > 4 * zlib and fast > 60",
)

timed_sentence(
    "07.18",
    "gzip takes {ratio:.2f} times as long as zlib (quartiles {low:.2f} to {high:.2f} of 15 pairs), at the same level, "
    "and makes {extra} bytes more.",
    expect="0.7 < ratio < 1.4",
)

timed_sentence(
    "07.19",
    "At the end {dense:.0%} of the weights are zero for dense, and {yes:.0%} for yes or no. With LZ4 a step of the "
    "second half takes {ratio:.2f} times as long as one of the first half.",
    expect="dense < 0.01 and 0.1 < yes < 0.9 and ratio > 0.95",
)


@asks(
    "07.1",
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
    "07.2",
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
    "07.3",
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
