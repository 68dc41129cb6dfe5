"""Lesson 17: predict the cost."""

import os
import sys
import time
import timeit
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar

import numpy as np

import minips as ps
from minips.cost import ring_allreduce_s
from minips.lab.course.exercises import Refused, asks, case, equals, refuse_if
from minips.lab.course.questions import Expected, Option, sentence, timed_estimate, timed_question, timed_sentence
from minips.stage import Array
from minips.stages.quantizers import Parts

timed_question(
    "17.1",
    "A message of 100 kB is a thousand times longer than one of 100 bytes. How much longer does it take?",
    Expected(
        "less than 3 times as long",
        lambda longer: longer < 3,
        "A call has a price that does not depend on its size: most likely system calls and waking up the other side. "
        "For 100 bytes that is nearly all of it, and for 100 kB still a large part. The bytes count only where there "
        "are many.",
    ),
    Option(
        "3 to 30 times as long",
        lambda longer: 3 <= longer < 30,
        "A call of 100 bytes is nearly all fixed price. Here 100 kB cost several times that price.",
    ),
    Option(
        "30 to 300 times as long",
        lambda longer: 30 <= longer < 300,
        "Here the bytes of the larger message are most of its time; the fixed price still helps the small one little.",
    ),
    Option(
        "more than 300 times as long",
        lambda longer: longer >= 300,
        "Time follows size here: a call has next to no fixed price.",
    ),
    otherwise="One of the two sizes has no time to compare.",
)

timed_estimate(
    "17.2",
    "Four workers share one server. Each of the five has a link of its own: 20 Mbit/s each way, both ways at once, and "
    "a latency of 0.005 s. In each step a worker pushes 80 kB. Once the server has all four pushes, it sends 80 kB of "
    "new parameters to each. Neglect the processors. How long is a step, when there are many of them?",
    "s",
    expected=(0.16, 0.24),
    because="80 kB take a link 0.032 s. From the moment when the server has all the pushes, the first worker's answer "
    "takes 0.032 + 0.005 s, and its next push as long again: 0.074 s. The pushes of the other three come in after it, "
    "0.032 s apart. Together that is 0.074 + 3 · 0.032 = 0.170 s. The later answers cost nothing extra: they travel "
    "while the first worker pushes again. The processors add a little.",
    otherwise="The links alone take 0.170 s. Where a step took much longer, other programs had the processors.",
)

timed_question(
    "17.3",
    "Before any formula: how long do 32 MB take over 10 Gbit/s, just once, one way?",
    Option(
        "about 0.003 s",
        lambda seconds: 0.001 < seconds <= 0.01,
        "The message was faster than 10 000 million bits a second: then the link was not around it.",
    ),
    Expected(
        "about 0.03 s",
        lambda seconds: 0.01 < seconds <= 0.1,
        "32 MB are 256 million bits, and the link carries 10 000 million bits each second: 0.0256 s. This machine "
        "needs a little more, to copy them. So one way alone takes about five times as long as the lecture's whole "
        "all-reduce. One of its units is wrong.",
    ),
    Option(
        "about 0.3 s",
        lambda seconds: 0.1 < seconds <= 1.0,
        "The link needs 0.0256 s for 256 million bits. The rest was spent by this machine, on copying or on others.",
    ),
    otherwise="The link needs 0.0256 s for 256 million bits. What was measured is far from that.",
)

timed_question(
    "17.4",
    "Training in a data centre, links of 400 Gbit/s. How many of the seven codecs still pay, on this processor?",
    Expected(
        "none of them",
        lambda paying: paying == 0,
        "A link of 400 Gbit/s carries a 32-bit value in 0.08 ns. To pay, encoding and decoding together have to be "
        "faster than that, and none is here. (At the slow end of the map lz4 is the exception: it finds "
        "nothing to squeeze in exact gradients, see lesson 07.)",
    ),
    Option(
        "one or two",
        lambda paying: 1 <= paying <= 2,
        "Some codec here encodes and decodes a value in less than the 0.08 ns that the link needs for 32 bits.",
    ),
    Option(
        "three or more",
        lambda paying: paying >= 3,
        "Encoding is fast on this processor: most codecs need less for a value than the link's 0.08 ns for 32 bits.",
    ),
    otherwise="The codecs that pay could not be counted.",
)

timed_sentence(
    "17.1",
    "A call of 100 kB took {longer:.1f} times as long as a call of 100 bytes: medians of {calls} calls each. The "
    "middle half of the long calls took from {low:.1f} to {high:.1f} times as long.",
    expect="longer < 20",
)

timed_sentence(
    "17.2",
    "One of {calls} calls of 1 kB was held up. Their mean is {mean:.0f} times as long as their median.",
    expect="mean > 5",
)

timed_sentence(
    "17.3",
    "Five series of calls, at 1 kB. Plain least squares is off by {plain[0]:+.0%}, {plain[1]:+.0%}, {plain[2]:+.0%}, "
    "{plain[3]:+.0%}, {plain[4]:+.0%}. The fit of relative errors: {relative[0]:+.0%}, {relative[1]:+.0%}, "
    "{relative[2]:+.0%}, {relative[3]:+.0%}, {relative[4]:+.0%}.",
    expect="sum([abs(x) for x in relative]) < sum([abs(x) for x in plain]) / 2 and max([abs(x) for x in relative]) < 1",
)

timed_sentence(
    "17.4",
    "The fit finds {a:.2f} times the link's α, and {b:.2f} times its β. Half of the {calls} calls took from {low:.2f} "
    "to {high:.2f} times what the line says. (More than 1: sending and waking up take time as well.)",
    expect="0.8 < a < 2 and 0.8 < b < 1.4",
)

timed_sentence(
    "17.5",
    "Over the emulated link the prediction of 300 kB is off by {error:+.0%}, by the quartiles of {calls} calls from "
    "{low:+.0%} to {high:+.0%}. Over the bare loopback the line through 100 bytes to 10 MB is off by {free[0]:+.0%} at "
    "3 kB, {free[1]:+.0%} at 30 kB, {free[2]:+.0%} at 300 kB, {free[3]:+.0%} at 3 MB.",
    expect="abs(error) < 0.25 and max([abs(x) for x in free]) < 1",
)

sentence(
    "17.6",
    "Bytes that the workers send in {steps} steps: {says_sent:,} predicted, {sent:,} counted. That they receive: "
    "{says_received:,} predicted, {received:,} counted.",
    expect="says_sent == sent and says_received == received",
)

timed_sentence(
    "17.7",
    "In {runs} runs the whole step is predicted at {low:.0%} to {high:.0%} of what was measured. Transfer: "
    "{transfer:.0%}. Wait: {wait:.0%}. The links alone, by arithmetic on paper, {links:.3f} s: {paper:.0%}.",
    expect="1 / 1.4 < low and high < 1.4 and 0.8 < transfer < 1.25 and 0.6 < wait < 1.6",
)

timed_sentence(
    "17.8",
    "The {count} spans of the processor are off by factors from {least:.1f} to {most:.1f}. Together they are "
    "{share:.1%} of the step.",
    expect="share < 0.1",
)

timed_sentence(
    "17.9",
    "One worker's spans add up to {whole:.0%} of the step as it was measured, and to {said:.0%} as it was predicted. "
    "Without what comes after the last update, the measured ones add up to {inside:.0%}.",
    expect="0.9 < inside < 1.02 and whole > inside and abs(said - whole) < 0.1",
)

timed_sentence(
    "17.10",
    "Without the link the prediction is {low:.0%} to {high:.0%} of the measured step, in {runs} runs. Span by span the "
    "first run is off by factors up to {most:.1f}.",
    expect="low > 0.05 and high < 4 and most > 1.5",
)

timed_sentence(
    "17.11",
    "With two servers a step was predicted to take {says:.0%} of the time with one. It took {low:.0%} to {high:.0%}, "
    "in {runs} runs.",
    expect="says < 0.9 and high < 0.95",
)

sentence(
    "17.12",
    "The lecture's code, in seconds: {says:.4f}; with 16 bits {half:.4f}, with 8 bits {byte:.4f}.",
    expect="abs(says - 0.0055) < 5e-5 and abs(half - 0.0027) < 5e-5 and abs(byte - 0.0014) < 5e-5",
)

sentence(
    "17.13",
    "A ring of 8 takes {right:.5f} s for a true 32 MiB: {times:.1f} times as long as the lecture says.",
    expect="abs(right - 0.04375) < 5e-6 and abs(times - 8) < 1e-9",
)

sentence(
    "17.14",
    "In seconds, with the lecture's 4 MiB: {one:.4f} with one latency, {each:.4f} with one for each message.",
    expect="abs(one - 0.0065) < 5e-5 and abs(each - 0.0195) < 5e-5",
)

sentence(
    "17.15",
    "8 bits: {large:.2f} times k/32 in 100 000 values, {small:.2f} times in 650. Sign: {sign_large:.2f} and "
    "{sign_small:.2f} times.",
    expect="large < 1.01 and sign_large < 1.1 and small > 1.1 and sign_small > 2",
)

sentence(
    "17.16",
    "Of top-k's message for 100 000 values the kept values are {kept:.0%}.",
    expect="0.4 < kept < 0.55",
)

timed_sentence(
    "17.17",
    "At 10 Mbit/s {slow} of the seven codecs pay, at 400 Gbit/s {fast}.",
    expect="slow >= 6 and fast == 0",
)

timed_sentence(
    "17.18",
    "In Gbit/s: fp16 breaks even at {half:.1f}, 8 bits at {byte:.1f}, and the last of the seven at {most:.1f}. Medians "
    "of {times} passes: by their quartiles fp16 breaks even at {low:.1f} to {high:.1f}.",
    expect="half < byte",
)

sentence(
    "17.19",
    "{tiny:.0%} of the values are subnormal as half floats; multiplied by 256, {left:.1%} are.",
    expect="tiny > 0.05 and left < 0.01",
)

timed_sentence(
    "17.20",
    "fp16 breaks even at {plain:.1f} Gbit/s as it is ({plain_low:.1f} to {plain_high:.1f} by the quartiles of {times} "
    "times), at {scaled:.1f} ({scaled_low:.1f} to {scaled_high:.1f}) with the values times 256. Two bare copies in its "
    "place would break even at {copied:.0f} ({copied_low:.0f} to {copied_high:.0f}).",
    expect="scaled > plain and copied > plain",
)

timed_sentence(
    "17.21",
    "From 100 kB to 1 MB a call through the loopback moves {rate:.0f} Gbit/s, in five series from {low:.0f} to "
    "{high:.0f}.",
    expect="high < 400",
)

timed_sentence(
    "17.22",
    "With 8 bits, training over 5 Mbit/s is {slow:.1f} times as fast ({slow_low:.1f} to {slow_high:.1f} in {runs} "
    "pairs of runs), and over the loopback {fast:.2f} times ({fast_low:.2f} to {fast_high:.2f}).",
    expect="slow > 2 and fast < slow",
)

timed_sentence("17.23", "The prediction is off by {error:+.0%}.", expect="abs(error) < 0.3")

timed_sentence(
    "17.24",
    "Judged by one message, {ten:.0%} of the codecs pay at 10 Gbit/s, and {over:.0%} of the {setups} set-ups from "
    "1 to 20 Gbit/s. In the paper it is 6 of more than 200: less than 3 %. One message's time does not explain that.",
    expect="over > 0.06",
    card=True,
)

timed_sentence(
    "17.25",
    "One gradient of 100 rows takes {compute:.1f} times as long here as its 0.8 MB take at 1 Gbit/s. Where computing "
    "hides as much of the transfer, {hidden:.0%} of the set-ups pay instead of {over:.0%}. Where it hides a tenth of "
    "that: {tenth:.0%}.",
    expect="hidden <= tenth <= over and hidden < over",
)


_OURS = str(Path(ps.__file__).parent) + os.sep


def _unaided(function: Any, *arguments: float) -> Any:
    """The function's result; Refused where it calls a function of minips, by whatever name."""

    def called(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(_OURS):
            raise Refused(f"it calls minips' own {frame.f_code.co_name}. Write the arithmetic yourself.")

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        return function(*arguments)
    finally:
        sys.setprofile(before)


@asks(
    "17.1",
    "How many bytes has a megabyte, how many bits a byte, how many bits a gigabit? No power of two is in it.",
    "A ring of n sends 2(n − 1) messages, one after the other. Each travels latency_s.",
    "Two lines turn the arguments into bytes and bytes per second; the ring's formula is the third.",
)
def ring_seconds(function: Any, rng: np.random.Generator) -> str:
    """Mend the lecture's function with your own arithmetic: SI units, bytes, and every latency."""
    refuse_if(not callable(function), f"Expected the function ring_seconds, got {function!r}.")
    for trial in range(30):
        workers, bits = int(rng.integers(2, 65)), int(rng.choice([1, 2, 4, 8, 16, 32]))
        megabytes, gigabits = float(rng.uniform(1, 200)), float(rng.uniform(0.1, 100))
        latency = 0.0 if trial < 10 else float(10 ** rng.uniform(-5, -2))
        data = f"{megabytes:.1f} MB at {bits} bits a value"
        with case(f"A ring of {workers}, {data}, {gigabits:.2f} Gbit/s, latency {latency:.2g} s:"):
            got = _unaided(function, workers, megabytes, bits, gigabits, latency)
            equals(got, ring_allreduce_s(workers, megabytes * 1e6 * bits / 32, gigabits * 1e9 / 8, latency), " s")
    return "Right for 30 random rings, with and without latency."


@dataclass(frozen=True)
class _Sleepy(ps.Exact):
    """Takes a while, so much of it whatever the size; and now and then something else takes the processor."""

    name: ClassVar[str] = "sleepy"
    fixed_s: float = 0.01
    each_s: float = 5e-8
    calls: list[int] = field(default_factory=lambda: [0])

    def encode(self, x: Array, rng: np.random.Generator | None = None) -> Parts:
        self.calls[0] += 1
        time.sleep((self.fixed_s + self.each_s * x.size) / 2 + (0.06 if self.calls[0] % 6 == 0 else 0.0))
        return super().encode(x, rng)

    def decode(self, parts: Parts) -> Array:
        x = super().decode(parts)
        time.sleep((self.fixed_s + self.each_s * x.size) / 2)
        return x


@asks(
    "17.2",
    "Time several sizes, far apart, and each of them several times.",
    "The median of a few times is not moved by one bad trip. Line.fit takes all the timings, and does that.",
    "line = Line.fit([(size, seconds), …]); return line.fixed_s, line.each_s",
)
def cost_of(function: Any, rng: np.random.Generator) -> str:
    """Fit a stage: seconds whatever the size, and seconds for each value, of encode and decode together."""
    refuse_if(not callable(function), f"Expected the function cost_of, got {function!r}.")
    stage = _Sleepy(fixed_s=float(rng.uniform(0.008, 0.014)), each_s=float(rng.uniform(4e-8, 8e-8)))
    answer = function(stage)
    if not isinstance(answer, tuple) or len(answer) != 2 or not all(np.isfinite(part) for part in answer):
        raise Refused(f"Expected a pair (seconds whatever the size, seconds for each value), got {answer!r}.")
    for size in (int(rng.integers(5_000, 12_000)), int(rng.integers(250_000, 400_000))):
        said, was = answer[0] + answer[1] * size, _takes(stage, size)
        with case(f"Of {size} values"):
            right = 0.6 * was < said < 1.6 * was
            refuse_if(not right, f"your fit says {said:.4f} s; encode and decode took {was:.4f} s.")
    return "Your fit predicts two sizes that it has never seen, of a stage that it has never seen."


def _takes(stage: ps.Exact, size: int) -> float:
    rng = np.random.default_rng()
    x = rng.normal(size=size).astype(np.float32)
    return float(np.median(timeit.repeat(lambda: stage.decode(stage.encode(x, rng)), repeat=5, number=1)))
