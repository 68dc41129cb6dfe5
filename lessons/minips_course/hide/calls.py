"""Calls over an emulated link: a channel to a server, the seconds of several calls, and a server that trains."""

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import numpy as np

import minips as ps
from minips.lab.measure.turns import Spread as Spread  # the lesson uses it
from minips.stage import Array, Frames
from minips.stages.transports import Channel
from minips_course.channels import calling as calling  # the lesson uses it

MEGABYTE, CALLS = 1_000_000, 24
"""The bytes of a call and the number of calls whose windows are compared."""
PATIENCE_S = 30.0


def shout(frames: Frames) -> Frames:
    """Answer with the same frames in capitals."""
    return [bytes(frame).upper() for frame in frames]


def note(frames: Frames) -> Frames:
    """Answer with a few bytes."""
    return [b"got it"]


class Connections(NamedTuple):
    """The seconds of a small call over a connection that stays open, and over one of its own: medians."""

    kept_s: float
    own_s: float
    opening_s: float
    """The part of ``own_s`` that opens the connection."""

    @property
    def times(self) -> float:
        """How many times as long a call takes over a connection of its own."""
        return self.own_s / self.kept_s

    @property
    def opening(self) -> float:
        """The share of the time of a call over a connection of its own in which it opens."""
        return self.opening_s / self.own_s


def connections(pairs: int = 30) -> Connections:
    """Measure a small call over a connection that stays open, and over one of its own, in turn."""
    taken = []
    with ps.Tcp().serve(note, token="lesson") as endpoint, ps.Tcp().connect(endpoint.address, "lesson") as kept:
        for _ in range(pairs):
            kept_s = _seconds(lambda: kept.call([b"1"]).result(timeout=PATIENCE_S))
            began = time.perf_counter()
            with ps.Tcp().connect(endpoint.address, "lesson") as own:
                opening_s = time.perf_counter() - began
                own.call([b"1"]).result(timeout=PATIENCE_S)
            taken.append((kept_s, time.perf_counter() - began, opening_s))
    return Connections(*np.median(taken, axis=0).tolist())


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def steps(run: ps.Run) -> Array:
    """Return the seconds from the start of one gradient of worker 0 to the start of its next one."""
    return np.diff([span.start for span in run.trace if span.who == "worker 0" and span.name == "compute"])


Windowed = Callable[[Channel, Iterable[Frames], int], Iterable[Frames]]
"""Yields the answers to messages, with so many calls under way at most."""


class Windows(NamedTuple):
    """The seconds of `CALLS` calls of a megabyte, by the number of calls that may be under way."""

    measured: dict[int, float]
    planned: dict[int, float]

    @property
    def table(self) -> str:
        """A row for each number of calls."""
        lines = ["calls under way | measured (s) | by α and β (s)"]
        for most, seconds in self.measured.items():
            lines.append(f"{most:15} | {seconds:12.3f} | {self.planned[most]:14.3f}")
        return "\n".join(lines)


def windows(answers: Windowed, link: ps.Link, sizes: Iterable[int] = (1, 2, 4, 6, 8, 16)) -> Windows:
    """Measure a learner's function with each of these windows."""
    measured = dict[int, float]()
    with calling(note, link) as channel:
        for most in sizes:
            measured[most] = _seconds(partial(_all, answers, channel, most))
    return Windows(measured, {most: planned_s(link, MEGABYTE, CALLS, most) for most in measured})


def _all(answers: Windowed, channel: Channel, most: int) -> list[Frames]:
    return [*answers(channel, ([bytes(MEGABYTE)] for _ in range(CALLS)), most)]


def planned_s(link: ps.Link, nbytes: float, calls: int, most: int) -> float:
    """Return the seconds of these calls by α and β: a call leaves when the link is free and one of ``most`` has ended.

    >>> round(planned_s(ps.Link(bandwidth_bps=1e9, latency_s=0.02), 1e6, 24, 1), 3)
    1.152
    """
    byte_s, ended = 8 / link.bandwidth_bps, list[float]()
    free = 0.0
    for call in range(calls):
        free = max(free, ended[call - most] if call >= most else 0.0) + nbytes * byte_s
        ended.append(free + 2 * link.latency_s)
    return ended[-1]


class Training(NamedTuple):
    """What a learner's loop gets: a way to ask, a gradient that takes its time, and the first parameters."""

    ask: "Callable[[Array], Future[Array]]"
    gradient: Callable[[Array], Array]
    params: Array


@contextmanager
def training(link: ps.Link, compute_s: float = 0.04, lr: float = 0.5) -> Iterator[Training]:
    """Yield a training of a digits model by one worker, whose server is behind a link."""
    problem = ps.SoftmaxRegression(*ps.datasets.digits())
    shapes = {name: p.shape for name, p in problem.init(np.random.default_rng(0)).items()}
    params = np.zeros(sum(int(np.prod(shape)) for shape in shapes.values()), "f4")
    served = params.copy()

    def serve(frames: Frames) -> Frames:
        served[:] -= lr * np.frombuffer(frames[0], "f4")
        return [served.tobytes()]

    def gradient(flat: Array) -> Array:
        named, at = {}, 0
        for name, shape in shapes.items():
            size = int(np.prod(shape))
            named[name], at = flat[at : at + size].reshape(shape), at + size
        time.sleep(compute_s)
        found = problem.gradient(named)
        return np.concatenate([found[name].ravel() for name in shapes])

    with calling(serve, link) as channel:

        def ask(gradients: Array) -> "Future[Array]":
            answer: Future[Array] = Future()

            def arrived(call: "Future[Frames]") -> None:
                if error := call.exception():
                    answer.set_exception(error)
                else:
                    answer.set_result(np.frombuffer(call.result()[0], "f4"))

            channel.call([gradients.tobytes()]).add_done_callback(arrived)
            return answer

        yield Training(ask, gradient, params)


def loop_s(train: Callable[..., Array], link: ps.Link, count: int = 20) -> float:
    """Return the seconds that a learner's loop takes for so many steps."""
    with training(link) as given:
        return _seconds(lambda: train(*given, count))


def plain_loop(
    ask: "Callable[[Array], Future[Array]]", gradient: Callable[[Array], Array], params: Array, steps: int
) -> Array:
    """Train without overlap: wait for the answer to each push."""
    for _ in range(steps):
        params = ask(gradient(params)).result(timeout=PATIENCE_S)
    return params
