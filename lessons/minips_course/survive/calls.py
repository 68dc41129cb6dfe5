"""Real calls whose answers come late or not at all, and what they cost."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

import minips as ps
from minips.core.shard import Shard
from minips.lab.measure.turns import Spread
from minips.stage import Frames
from minips.stages.aggregators import Contribution
from minips_course.channels import calling as calling  # the lesson uses it


class Adding:
    """A server's handler: for each call it adds 1, and answers some seconds later. Calls are handled one by one."""

    def __init__(self, answers_after: float) -> None:
        self.answers_after, self.counted = answers_after, 0

    def __call__(self, frames: Frames) -> Frames:
        self.counted += 1
        time.sleep(self.answers_after)
        return [b"added"]


def shard_and_push() -> tuple[Shard, Contribution]:
    """A server's rules for one parameter and one worker, and that worker's first push: it moves the parameter by 1."""
    config = ps.Config(workers=1, consistency=ps.ASP(), optimizer=ps.SGD(lr=1.0))
    push = Contribution(worker=0, clock=0, version=0, gradients={"w": np.ones(1)})
    return Shard.of(config, {"w": np.zeros(1)}), push


@contextmanager
def pushing(answers_after: float) -> Iterator[tuple[Callable[[], Any], list[str], Shard]]:
    """A server that applies the push of each call at once. Its first answer comes after so many seconds.

    Yields what connects to it, its answers, and its rules with the parameter.
    """
    shard, push = shard_and_push()
    answers: list[str] = []

    def handler(frames: Frames) -> Frames:
        answers.append(shard.push(push))
        time.sleep(answers_after if len(answers) == 1 else 0)
        return [answers[-1].encode()]

    with ps.Tcp().serve(handler, token="lesson") as endpoint:
        yield partial(ps.Tcp().connect, endpoint.address, token="lesson"), answers, shard


def twenty_calls(looks: bool) -> tuple[int, int]:
    """Make 20 calls of 0.02 s of work each, and give up after 0.11 s; the frame of a call says when that is.

    Return how many are answered in time, and on how many the server works. It drops calls that are too late if it
    ``looks`` at the deadline. (All processes on a machine share one clock.)
    """
    worked = []

    def handler(frames: Frames) -> Frames:
        if looks and time.monotonic() > float(bytes(frames[0])):
            raise TimeoutError("The caller has given up.")
        time.sleep(0.02)
        worked.append(1)
        return frames

    with calling(handler) as channel:
        deadline = str(time.monotonic() + 0.11).encode()
        futures = [channel.call([deadline]) for _ in range(20)]
        answered = [future for future in wait(futures, timeout=0.11).done if not future.exception()]
        wait(futures, timeout=10)
    return len(answered), len(worked)


def fresh_connections(pairs: int = 60) -> Spread:
    """How many times as long a call over Http takes if it opens a connection, in pairs with calls through a pool."""

    def seconds(channel: Any) -> float:
        began = time.perf_counter()
        channel.call([bytes(1_000)]).result(timeout=10)
        return time.perf_counter() - began

    with (
        ps.Http().serve(lambda frames: [b"got it"], token="lesson") as endpoint,
        ps.Http(pool=8).connect(endpoint.address, token="lesson") as pooled,
        ps.Http(pool=0).connect(endpoint.address, token="lesson") as unpooled,
    ):
        one_by_one = [(seconds(pooled), seconds(unpooled)) for _ in range(pairs)]
    return Spread.of(without / with_ for with_, without in one_by_one)
