"""The exercises of "Put a deep net under DDP"."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from minips.lab.course.exercises import Refused, asks, case, refuse_if
from minips.stage import Array

WAIT_S = 5.0
"""The most seconds for which a rank waits for the others in a check."""


class Member:
    """A rank of a group whose ranks are threads. It replaces `ranks.Group` in checks, and does not need torch."""

    def __init__(self, rank: int, shared: "list[Array | None]", barrier: threading.Barrier, bucket: int) -> None:
        self.size, self.bucket, self.sent = len(shared), bucket, 0
        self._rank, self._shared, self._barrier = rank, shared, barrier

    def all_reduce(self, array: Array) -> Array:
        """Return the sum over the ranks, in the array's own type."""
        mine = np.array(array)
        self.sent += mine.nbytes
        self._shared[self._rank] = mine
        self._barrier.wait()
        given = [one for one in self._shared if one is not None]
        self._barrier.wait()
        refuse_if(len({(one.shape, one.dtype) for one in given}) > 1, "the ranks' arrays differ in shape or type.")
        with np.errstate(over="ignore"):
            total = np.zeros_like(mine)
            for one in given:
                total += one
        return total


def together(calls: list[Callable[[Array, Member], Array]], gradients: list[Array], bucket: int = 0) -> list[Any]:
    """Call all ranks' hooks, each with its own gradient; return their results and the bytes that rank 0 handed over."""
    shared: list[Array | None] = [None] * len(gradients)
    barrier = threading.Barrier(len(gradients), timeout=WAIT_S)
    members = [Member(rank, shared, barrier, bucket) for rank in range(len(gradients))]

    def call(rank: int) -> Array:
        try:
            return calls[rank](gradients[rank], members[rank])
        except BaseException:
            barrier.abort()
            raise

    with ThreadPoolExecutor(len(gradients)) as pool:
        futures = [pool.submit(call, rank) for rank in range(len(gradients))]
        errors = [error for one in futures if (error := one.exception())]
        for error in sorted(errors, key=lambda error: isinstance(error, threading.BrokenBarrierError)):
            if isinstance(error, threading.BrokenBarrierError):
                raise Refused("the ranks' hooks do not all call all_reduce the same number of times.")
            raise error
    return [[one.result() for one in futures], members[0].sent]


@asks(
    "ddp.1",
    'Send half of the bytes: float16, whose name in NumPy is "f2". And return the mean as float32 again.',
    "all_reduce sums in the type of its array, and float16 ends at 65,504. How can a sum over several ranks exceed it?",
    "Do three things in this order: compute this rank's part of the mean, in float16; sum; convert to float32.",
)
def half(hook: Any, rng: np.random.Generator) -> str:
    """Write a hook that hands over float16 values, and returns the mean over the ranks in float32."""
    if not callable(hook):
        raise Refused(f"Expected your function my_hook(gradient, group), got {hook!r}.")
    for trial in range(6):
        ranks, size = int(rng.integers(2, 9)), int(rng.integers(1, 40))
        scale = (1.0, 1e-2, 5e4)[trial % 3]
        gradients = [(scale * rng.uniform(0.5, 1, size)).astype("f4") for _ in range(ranks)]
        before = [g.copy() for g in gradients]
        with case(f"With {ranks} ranks and {size} values of the size {scale:g}:"):
            means, sent = together([hook] * ranks, gradients)
            refuse_if(sent > 2 * size, f"a rank hands over {sent} bytes; {2 * size} are asked for.")
            mean = np.mean(before, axis=0, dtype=float)
            for got in means:
                refuse_if(not isinstance(got, np.ndarray) or got.dtype != np.float32, "it returns no float32 array.")
                refuse_if(got.shape != mean.shape, f"it returns an array of the shape {got.shape}.")
                off = float(np.abs(got - mean).max())
                refuse_if(not off <= 2e-3 * scale, f"the mean is off by {off:.2g}.")
            refuse_if(
                any(not np.array_equal(a, b) for a, b in zip(gradients, before, strict=True)), "the gradient changed."
            )
    return "Half of the bytes, and the mean of all ranks in float32."


@asks(
    "ddp.2",
    "Quantize the sum of the gradient and the held values. Then hold this sum minus the values that were sent.",
    "DDP calls the hook for each bucket. group.bucket is its number, and buckets differ in length.",
    "Read self.held.get(group.bucket, 0) before the call of coarse, and set self.held[group.bucket] after it.",
)
def remembers(cls: Any, rng: np.random.Generator) -> str:
    """Give a hook a memory: add what a rank did not send to its next gradient of the same bucket."""
    refuse_if(not isinstance(cls, type) or not hasattr(cls, "coarse"), f"Expected your class Remembers, got {cls!r}.")
    ranks, sizes = int(rng.integers(2, 4)), [int(size) for size in rng.permutation([30, 50, 70])]
    hooks, held = [cls() for _ in range(ranks)], [dict[int, Array]() for _ in range(ranks)]
    for step in range(4):
        for bucket, size in enumerate(sizes):
            gradients = [rng.normal(size=size).astype("f4") for _ in range(ranks)]
            meant = [g + held[rank].get(bucket, np.float32(0)) for rank, g in enumerate(gradients)]
            sent = [cls.coarse(p) for p in meant]
            for rank in range(ranks):
                held[rank][bucket] = meant[rank] - sent[rank]
            with case(f"With {ranks} ranks, step {step}, bucket {bucket} of {size} values:"):
                means, _ = together(hooks, gradients, bucket)
                off = float(np.abs(means[0] - np.mean(sent, axis=0)).max())
                refuse_if(not off <= 1e-5, f"the mean is off by {off:.2g} from that of error feedback.")
    return "In each bucket, what was not sent is added to the next gradient."
