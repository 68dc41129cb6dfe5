"""Measures codecs, and computes the seconds of a step and of a training."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from time import perf_counter
from timeit import repeat
from typing import NamedTuple

import numpy as np

import minips as ps
from minips.arithmetic import one_blas_thread
from minips.lab.course.best import Best
from minips.stage import Array, Tensors

LATENCY_S = 1e-4
"""Of each message."""
TIMES = 75
"""How often the parts of a step are measured, in turns."""


def problem(features: int, seed: int = 0, rows: int | None = None) -> ps.SoftmaxRegression:
    """Make a classifier of digits that are mapped to random features.

    These are rounded, so that they are the same on each machine: a kept sweep is of these bits.
    """
    data = ps.datasets.digits(seed=seed, dtype="float64")
    X, held_out = (
        np.round(ps.datasets.fourier(part[:rows], features), 6).astype("f4") for part in (data.X, data.X_validation)
    )
    return ps.SoftmaxRegression(X, data.y[:rows], held_out, data.y_validation[:rows])


def gradient(one: ps.SoftmaxRegression, rows: int = 32) -> Tensors:
    """Compute the first gradient, of so many rows."""
    return one.gradient(one.init(np.random.default_rng(0)), range(rows))


class Trips(NamedTuple):
    """A message that was encoded and decoded several times."""

    there: Array
    """The seconds to encode it, each time."""
    back: Array
    """The seconds to decode it."""
    nbytes: int


def measure(codecs: Mapping[str, ps.Codec], tensors: Tensors, times: int = 15) -> dict[str, Trips]:
    """Encode and decode with each codec, in turns, so that a busy moment hits all of them."""
    ends = {name: (codec.sender(), codec.receiver()) for name, codec in codecs.items()}
    spent, nbytes = {name: list[tuple[float, float]]() for name in ends}, dict[str, int]()
    for _ in range(times):
        for name, (sender, receiver) in ends.items():
            began = perf_counter()
            frames = sender.encode(tensors)
            between = perf_counter()
            receiver.decode(frames)
            spent[name].append((between - began, perf_counter() - between))
            nbytes[name] = sum(len(frame) for frame in frames)
    found = {}
    for name, rows in spent.items():
        there, back = np.transpose(rows)
        found[name] = Trips(there, back, nbytes[name])
    return found


def break_evens(trips: Mapping[str, Trips]) -> dict[str, Array]:
    """The bandwidth in Gbit/s below which one message gets faster with a codec: quartile, median, quartile. 0 if with
    no link.
    """
    exact = trips["exact"]
    found = {}
    for name, one in trips.items():
        if name != "exact":
            more = one.there + one.back - np.median(exact.there + exact.back)
            added = np.quantile(more, (0.75, 0.5, 0.25))
            saved = max(exact.nbytes - one.nbytes, 0)
            found[name] = np.array([8e-9 * saved / s if s > 0 else saved and np.inf for s in added])
    return found


class Way(NamedTuple):
    """What a training with one codec takes. A step's seconds are for one gradient or message, its bytes, too."""

    steps: float
    """Until the model reads 90 % of the held-out digits."""
    gradient: float
    """Seconds to compute a gradient."""
    encode: float
    """Seconds to encode a push."""
    pushed: float
    """Bytes of a push."""
    decode: float
    """Seconds to decode a push."""
    answer: float
    """Seconds to encode the parameters, and to decode them."""
    pulled: float
    """Bytes of the parameters on their way back."""


def on_links(way: Way, workers: int) -> float:
    """The bytes that a step's links carry one after another, as in `ps.cost.parameter_server_step_s`."""
    return ps.cost.parameter_server_step_s(workers, way.pushed, 1.0, pulled_nbytes=way.pulled)


def step_s(way: Way, rate: float, workers: int, latency_s: float = LATENCY_S) -> tuple[float, float]:
    """Seconds of a step on the processors, and on the links of ``rate`` bit/s."""
    processors = way.gradient + way.encode + workers * way.decode + way.answer
    return processors, 2 * latency_s + 8 * on_links(way, workers) / rate


def until(ways: Sequence[Way], rate: float, workers: int, latency_s: float = LATENCY_S) -> Array:
    """Seconds until 90 % are read, for each seed."""
    return np.array([way.steps * sum(step_s(way, rate, workers, latency_s)) for way in ways])


def middle(ways: Sequence[Way]) -> Way:
    """The mean number of steps, and the medians of the rest."""
    return Way(float(np.mean([way.steps for way in ways])), *np.median([way[1:] for way in ways], axis=0))


def ratio_of_steps(ways: Mapping[str, Sequence[Way]], one: str, other: str, rate: float, workers: int = 4) -> float:
    """How many times as long a step takes in one way as in another."""
    first, second = (sum(step_s(middle(ways[name]), rate, workers)) for name in (one, other))
    return first / second


def race(ways: Mapping[str, Sequence[Way]], rate: float, workers: int) -> dict[str, Array]:
    """Seconds until 90 % are read, by way and seed."""
    return {name: until(some, rate, workers) for name, some in ways.items()}


def table(ways: Mapping[str, Sequence[Way]], pays_below: Callable[[Way, Way, int, float], float]) -> str:
    """A row for each codec: the bandwidth in Gbit/s below which one message pays, and a training, by workers."""
    middles = {name: middle(some) for name, some in ways.items()}
    exact = middles.pop("exact")
    lines = ["pays below (Gbit/s)  message   1 worker  4 workers  16 workers"]
    for name, way in middles.items():
        message = 8 * (exact.pushed - way.pushed) / (way.encode + way.decode - exact.encode - exact.decode)
        found = [message, *(float(pays_below(way, exact, workers, LATENCY_S)) for workers in (1, 4, 16))]
        lines.append(f"{name:18}" + "".join(f"{rate / 1e9:11.2f}" for rate in found))
    return "\n".join(lines)


def measure_steps(ways: Mapping[str, ps.Config], best: Best, one: ps.SoftmaxRegression) -> dict[str, list[Way]]:
    """Measure a gradient of this problem, and each way to send it and the parameters: for each seed its own fifth of
    the times, and its own steps.
    """
    tensors = gradient(one)
    pushes = measure({name: config.push for name, config in ways.items()}, tensors, TIMES)
    pulls = measure({name: config.pull for name, config in ways.items()}, tensors, TIMES)
    computed = np.array(one_blas_thread(repeat)(lambda: gradient(one), number=1, repeat=TIMES))
    found = {}
    for name in ways:
        push, pull, steps, found[name] = pushes[name], pulls[name], best.values(name), list[Way]()
        for seed, count in enumerate(steps):
            some = slice(seed, None, len(steps))
            times = [float(np.median(x[some])) for x in (computed, push.there, push.back, pull.there + pull.back)]
            took, encode, decode, answer = times
            found[name].append(Way(float(count), took, encode, push.nbytes, decode, answer, pull.nbytes))
    return found


def paired(plain: ps.Config, other: ps.Config, one: ps.Problem, link: ps.Link | None, pairs: int = 5) -> Array:
    """How many times as fast the other config was on a link, with threads: the least, the median, and the most."""
    both = [replace(config, link=link) for config in (plain, other)]
    runs = [[ps.train(one, config, engine=ps.Threads()).seconds for config in both] for _ in range(pairs)]
    return np.quantile([first / second for first, second in runs], (0, 0.5, 1))
