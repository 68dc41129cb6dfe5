"""Lesson 09: predict the cost."""

import time
import timeit
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

import minips as ps
from minips.cost import ring_allreduce_s
from minips.lab.course.exercises import Refused, asks, case, equals, refuse_if
from minips.lab.course.questions import Option, question, sentence
from minips.stage import Array
from minips.stages.quantizers import Parts

question(
    "09.1",
    "A message of 100 kB is a thousand times longer than one of 100 bytes. How much longer does it take?",
    Option("a thousand times, nearly", lambda TODO: False, "TODO"),
    Option("about a hundred times", lambda TODO: False, "TODO"),
    Option(
        "less than twenty times",
        lambda TODO: False,
        "A call has a price that does not depend on its size: system calls, and waking up the other side. For"
        " short messages that is nearly all of it. The bytes count only where there are many of them.",
    ),
    expected="less than twenty times",
    otherwise="TODO",
    telling=[],
)

question(
    "09.2",
    "How far off will the predicted time of a step be, on this link of 20 Mbit/s?",
    Option("less than 40 %", lambda TODO: False, "TODO"),
    Option("about a factor of 2", lambda TODO: False, "TODO"),
    Option(
        "a factor of 5 or more",
        lambda TODO: False,
        "On this slow link nearly all of the step is S/B and α, and the emulator adds exactly those. What the"
        " processor does was predicted much worse, but it is too short to matter here.",
    ),
    expected="a factor of 5 or more",
    otherwise="TODO",
    telling=[],
)

question(
    "09.3",
    "Before any formula: how long do 32 MB take over 10 Gbit/s, just once, one way?",
    Option("about 0.003 s", lambda TODO: False, "TODO"),
    Option(
        "about 0.026 s",
        lambda TODO: False,
        "32 MB are 256 million bits, and the link carries 10 000 million bits each second. So one way alone "
        "takes five times as long as the lecture's whole all-reduce. One of its units is wrong.",
    ),
    Option("about 0.26 s", lambda TODO: False, "TODO"),
    expected="about 0.026 s",
    otherwise="TODO",
    telling=[],
)

question(
    "09.4",
    "Training in a data centre, links of 400 Gbit/s. How many of the seven codecs still pay, on this processor?",
    Option("none of them", lambda TODO: False, "TODO"),
    Option("one or two", lambda TODO: False, "TODO"),
    Option(
        "three or more",
        lambda TODO: False,
        "A link of 400 Gbit/s carries a 32-bit value in 0.08 ns. To pay, encoding and decoding together have "
        "to be faster than that. On slow links nearly everything is. (Only lz4 pays hardly anywhere: it finds"
        " nothing to squeeze in exact gradients, see lesson 04.)",
    ),
    expected="three or more",
    otherwise="TODO",
    telling=[],
)

sentence(
    "09.1", "A call of 100 kB took {longer:.1f} times as long as a call of 100 bytes.", expect="longer < 20", timed=True
)

sentence(
    "09.2",
    "The fit finds {a:.2f} times the link's α, and {b:.2f} times its β. (More than 1: sending and waking "
    "up take time as well.)",
    expect="0.8 < a < 2 and 0.8 < b < 1.4",
    timed=True,
)

sentence(
    "09.3",
    "At 1 kB the relative fit is off by {relative:+.1%}, plain least squares by {plain:+.1%}.",
    expect="abs(relative) < 0.1",
    timed=True,
)

sentence(
    "09.4",
    "Over the emulated link the prediction of 300 kB is off by {error:+.0%}, over the bare loopback by {free:+.0%}.",
    expect="abs(error) < 0.25 and -0.8 < free < 4",
    timed=True,
)

sentence(
    "09.5",
    "The whole step: predicted at {ratio:.0%} of what was measured. Transfer: {transfer:.0%}. Wait: {wait:.0%}.",
    expect="1 / 1.4 < ratio < 1.4",
    timed=True,
)

sentence(
    "09.6",
    "The {count} spans of the processor are off by factors from {least:.1f} to {most:.1f}. Together they "
    "are {share:.1%} of the step.",
    expect="share < 0.1",
    timed=True,
)

sentence(
    "09.7",
    "Without the link the prediction is {low:.0%} to {high:.0%} of the measured step, in three runs. Span"
    " by span the first run is off by factors up to {most:.1f}.",
    expect="low > 0.2 and high < 3",
    timed=True,
)

sentence(
    "09.8",
    "With two servers a step was predicted to take {says:.0%} of the time with one. It took {took:.0%}.",
    expect="says < 0.9 and took < 0.95",
    timed=True,
)

sentence(
    "09.9",
    "In 100 000 values: 8 bits take {byte:.2f} times what the formula says, top 1 % takes {top:.2f} times.",
    expect="byte < 1.01 and top > 1.9",
)

sentence(
    "09.10",
    "In 650 values: 8 bits take {byte:.2f} times what the formula says, sign {sign:.2f} times.",
    expect="sign > 2",
)

sentence(
    "09.11",
    "At 10 Mbit/s {slow} of the seven codecs pay, at 400 Gbit/s {fast}.",
    expect="slow >= 6 and fast == 0",
    timed=True,
)

sentence(
    "09.12",
    "fp16 breaks even at {half:.1f} Gbit/s, 8 bits at {byte:.1f}, and the last of the seven at {most:.1f}.",
    expect="half < byte",
    timed=True,
)

sentence(
    "09.13",
    "{tiny:.0%} of the values are subnormal as half floats. Multiplied by 256, {left:.1%} are, and the "
    "cast and back is {times:.1f} times as fast.",
    expect="times > 1",
    timed=True,
)

sentence(
    "09.14",
    "So fp16 would break even at {scaled:.1f} Gbit/s instead of {plain:.1f}. With casts as fast as copies"
    " it would be {copied:.0f} Gbit/s.",
    expect="copied > plain",
    timed=True,
)

sentence(
    "09.15",
    "From 100 kB to 1 MB a call through the loopback moves {rate:.0f} Gbit/s. Cables of 400 Gbit/s are faster.",
    timed=True,
)

sentence(
    "09.16",
    "With 8 bits, training is {slow:.1f} times as fast over 5 Mbit/s, and {fast:.1f} times as fast over the loopback.",
    expect="slow > 2 and fast < slow",
    timed=True,
)

sentence("09.17", "The prediction is off by {error:+.0%}.", expect="abs(error) < 0.3", timed=True)

sentence(
    "09.18",
    "{verdict}: {fast:.0%} of the set-ups pay at 100 Gbit/s and more, {slow:.0%} at 100 Mbit/s and less.",
    expect="fast <= 0.06 and slow > 0.5",
    timed=True,
)


@asks(
    "09.1",
    "How many bytes has a megabyte, how many bits a byte, how many bits a gigabit? No power of two is in it.",
    "A ring of n sends 2(n − 1) messages, one after the other. Each travels latency_s.",
    "Two lines turn the arguments into bytes and bytes per second; the ring's formula is the third.",
)
def ring_seconds(function: Any, rng: np.random.Generator) -> str:
    """Mend the lecture's function: SI units, bytes, and every latency."""
    refuse_if(not callable(function), f"Expected the function ring_seconds, got {function!r}.")
    for trial in range(30):
        workers, bits = int(rng.integers(2, 65)), int(rng.choice([1, 2, 4, 8, 16, 32]))
        megabytes, gigabits = float(rng.uniform(1, 200)), float(rng.uniform(0.1, 100))
        latency = 0.0 if trial < 10 else float(10 ** rng.uniform(-5, -2))
        data = f"{megabytes:.1f} MB at {bits} bits a value"
        with case(f"A ring of {workers}, {data}, {gigabits:.2f} Gbit/s, latency {latency:.2g} s:"):
            got = function(workers, megabytes, bits, gigabits, latency)
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
    "09.2",
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
