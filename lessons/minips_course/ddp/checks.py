"""The exercises of "Put a deep net under DDP"."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from minips.lab.course.exercises import Refused, asks, case, refuse_if
from minips.stage import Array
from minips.testing.base import same_bits
from minips_course.arrays import array_bytes

WAIT_S = 20.0
"""The most seconds for which a rank waits for the others in a check."""


class Deserted(Exception):  # noqa: N818, it names what happened to a rank
    """Raised in a rank that waits for another rank which has left."""


class Meeting:
    """Where the ranks of a group, which are threads, add up their arrays."""

    def __init__(self, size: int) -> None:
        self.given: list[list[Array]] = [[] for _ in range(size)]
        """Each rank's arrays, call by call."""
        self._left, self._changed = set[int](), threading.Condition()

    def add_up(self, rank: int, array: Array) -> Array:
        """Return the sum over the ranks, in the array's own type. Raises `Deserted` if another rank does not come."""
        with self._changed:
            self.given[rank].append(np.array(array))
            turn = len(self.given[rank])
            self._changed.notify_all()
            if not self._changed.wait_for(lambda: self._are_here(turn) or self._lacks(turn), WAIT_S):
                raise Deserted
        if not self._are_here(turn):
            raise Deserted
        arrays = [theirs[turn - 1] for theirs in self.given]
        refuse_if(len({(one.shape, one.dtype) for one in arrays}) > 1, "the ranks' arrays differ in shape or type.")
        total = np.zeros_like(arrays[0])
        with np.errstate(over="ignore"):
            for one in arrays:
                total += one
        return total

    def leave(self, rank: int) -> None:
        """Note that this rank adds nothing more."""
        with self._changed:
            self._left.add(rank)
            self._changed.notify_all()

    def _are_here(self, turn: int) -> bool:
        return all(len(theirs) >= turn for theirs in self.given)

    def _lacks(self, turn: int) -> bool:
        return any(len(self.given[rank]) < turn for rank in self._left)


class Member:
    """A rank of a group whose ranks are threads. It replaces `ranks.Group` in checks, and does not need torch."""

    def __init__(self, rank: int, size: int, bucket: int, meeting: Meeting) -> None:
        self.size, self.bucket = size, bucket
        self._rank, self._meeting = rank, meeting

    def all_reduce(self, array: Array) -> Array:
        """Return the sum over the ranks, in the array's own type."""
        return self._meeting.add_up(self._rank, array)


def together(
    calls: "Sequence[Callable[[Array, Any], Array]]", gradients: list[Array], bucket: int = 0
) -> tuple[list[Any], list[list[Array]]]:
    """Call all ranks' hooks, each with its own gradient; return their results and the arrays that they handed over.

    Raises `Refused` if a hook changes its gradient. Afterwards the gradients' memory has other values, as under DDP.
    """
    size = len(gradients)
    meeting, given = Meeting(size), [g.copy() for g in gradients]

    def call(rank: int) -> Array:
        try:
            return calls[rank](given[rank], Member(rank, size, bucket, meeting))
        finally:
            meeting.leave(rank)

    with ThreadPoolExecutor(size) as pool:
        futures = [pool.submit(call, rank) for rank in range(size)]
        errors = [error for one in futures if (error := one.exception())]
    for error in sorted(errors, key=lambda error: isinstance(error, Deserted)):
        if isinstance(error, Deserted):
            raise Refused("the ranks' hooks do not all call all_reduce the same number of times.")
        raise error
    for now, before in zip(given, gradients, strict=True):
        refuse_if(not same_bits(now, before), "the hook changed the gradient. Make a new array.")
        now[...] = np.nan
    return [one.result() for one in futures], meeting.given


def is_mean(got: Any, mean: Array, most: float, than: str = "") -> None:
    """Raise `Refused` unless a hook returned an array that is off this mean by ``most`` at most."""
    refuse_if(not isinstance(got, np.ndarray), f"it returns a {type(got).__name__}, not an array.")
    refuse_if(got.shape != mean.shape, f"it returns an array of the shape {got.shape}.")
    off = float(np.abs(got - mean).max())
    refuse_if(not off <= most, f"the mean is off by {off:.2g}{than}.")


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
    kept: list[tuple[Array, Array]] = []
    for trial in range(18):
        ranks, size = (2, 8, 1, int(rng.integers(3, 8)))[trial % 4], (40, 1, 2, int(rng.integers(3, 40)))[trial % 4]
        scale, signs = (1.0, 1e-2, 5e4)[trial % 3], ([1], [-1], [-1, 1])[trial // 3 % 3]
        gradients = [(scale * rng.uniform(0.5, 1, size) * rng.choice(signs, size)).astype("f4") for _ in range(ranks)]
        with case(f"With {ranks} ranks and {size} values of the size {scale:g}:"):
            means, given = together([hook] * ranks, gradients)
            for arrays in given:
                types = {str(array.dtype) for array in arrays}
                refuse_if(types != {"float16"}, f"a rank hands over {' and '.join(types) or 'nothing'}, not float16.")
                sent = sum(array.nbytes for array in arrays)
                refuse_if(sent > 2 * size, f"a rank hands over {sent} bytes; {2 * size} are asked for.")
            for got in means:
                is_mean(got, np.mean(gradients, axis=0, dtype=float), 2e-3 * scale)
                refuse_if(got.dtype != np.float32, f"it returns {got.dtype}, not float32.")
                kept.append((got, got.copy()))
    later = any(not same_bits(got, then) for got, then in kept)
    refuse_if(later, "A later call wrote into an array that an earlier one had returned. Make a new one in each call.")
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
    numbers = rng.choice(50, 4, replace=False).tolist()
    sizes = dict(zip([*numbers, numbers[0] + 80, 1000], (30, 70, 10, 1, 30, 30), strict=True))
    groups = [_Group(cls, ranks) for ranks in (int(rng.integers(2, 5)), 1, 2)]
    for step in range(10):
        for bucket in rng.permutation([*sizes]).tolist():
            for group in groups:  # in turn, so that a state of the class is seen
                what = f"With {len(group.hooks)} ranks, step {step}, bucket {bucket} of {sizes[bucket]} values:"
                with case(what):
                    group.step(bucket, sizes[bucket], rng)
        if step == 4:
            before = [group.nbytes() for group in groups]
    grown = max(group.nbytes() - then for group, then in zip(groups, before, strict=True))
    refuse_if(grown > 500, f"In 5 steps a group's hooks grew by {grown} bytes. Keep one array for each bucket.")
    later = any(not same_bits(got, then) for group in groups for got, then in group.kept)
    refuse_if(later, "A later call wrote into an array that an earlier one had returned. Make a new one in each call.")
    return "In each bucket, what was not sent is added to the next gradient."


class _Group:
    """Ranks with a hook each, and what each of them must hold of each bucket."""

    def __init__(self, cls: Any, ranks: int) -> None:
        self.hooks: list[Any] = [cls() for _ in range(ranks)]
        self.kept: list[tuple[Array, Array]] = []
        self._held = [dict[int, Array]() for _ in range(ranks)]

    def step(self, bucket: int, size: int, rng: np.random.Generator) -> None:
        """Let all ranks exchange a bucket. Raises `Refused` unless each gets the mean of error feedback."""
        scale = 10 ** rng.uniform(-1, 1)
        gradients = [(scale * rng.normal(size=size)).astype("f4") for _ in self.hooks]
        meant = [g + held.get(bucket, np.float32(0)) for g, held in zip(gradients, self._held, strict=True)]
        sent = [_largest_tenth(p) for p in meant]
        for held, p, part in zip(self._held, meant, sent, strict=True):
            held[bucket] = p - part
        means, _ = together(self.hooks, gradients, bucket)
        for got in means:
            is_mean(
                got, np.mean(sent, axis=0), 1e-5 * max(float(np.abs(p).max()) for p in meant), " from error feedback"
            )
            self.kept.append((got, got.copy()))

    def nbytes(self) -> int:
        """Return the bytes of what the hooks hold."""
        return sum(map(array_bytes, self.hooks))


def _largest_tenth(p: Array) -> Array:
    return np.where(np.abs(p) >= np.quantile(np.abs(p), 0.9), p, 0 * p)
