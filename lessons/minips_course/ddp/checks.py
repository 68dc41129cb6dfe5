"""The exercises of "Put a deep net under DDP"."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
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
    """A rank of a group whose ranks are threads. It replaces `nets.Group` in checks, and does not need torch."""

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


class Sending(Future):  # type: ignore[type-arg]
    """The future of an all-reduce that comes no further until somebody waits for it."""

    def __init__(self, run: Callable[[], None]) -> None:
        super().__init__()
        self._run = run

    def result(self, timeout: float | None = None) -> Any:
        self._run()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> Any:
        self._run()
        return super().exception(timeout)


class SlowWire:
    """Replaces `ranks.Wire` in a check. What was started is summed when its future is waited for, and not before."""

    def __init__(self, rank: int, ranks: int, meeting: Meeting) -> None:
        self.ranks = ranks
        self.ready = 0
        """How many gradients are ready."""
        self.sizes, self.started, self.waited = list[int](), list[int](), list[int]()
        """The values of each all-reduce; how many gradients were ready at each start, and at each wait."""
        self._rank, self._meeting = rank, meeting
        self._under_way = list[tuple[Array, Array, Sending]]()
        """Each array, a copy from its start, and its future."""

    def start(self, array: Any) -> Sending:
        """Begin an all-reduce that replaces the array by the sum over the ranks."""
        refuse_if(not isinstance(array, np.ndarray), f"wire.start got a {type(array).__name__}, not an array.")
        refuse_if(array.dtype != np.float32, f"wire.start got {array.dtype}; the gradients are float32.")
        sending = Sending(lambda: self._run(sending))
        self._under_way.append((array, array.copy(), sending))
        self.sizes.append(array.size)
        self.started.append(self.ready)
        return sending

    def gradients(self, arrays: Sequence[Array]) -> Iterator[Array]:
        """Yield the gradients one after another, as backward makes them."""
        for array in arrays:
            self.ready += 1
            yield array

    @property
    def left(self) -> int:
        """How many all-reduces are under way."""
        return len(self._under_way)

    def _run(self, until: Sending) -> None:
        self.waited.append(self.ready)
        while not until.done():
            array, before, sending = self._under_way.pop(0)
            changed = "an array is changed while its all-reduce is under way: wait for its future first."
            refuse_if(not same_bits(array, before), changed)
            array[...] = self._meeting.add_up(self._rank, array)
            sending.set_result(array)


def partition(sizes: Sequence[int], most: float) -> tuple[list[int], list[int]]:
    """Return the values of each bucket of at least ``most`` bytes, and how many gradients are ready when it is full."""
    values, ready, held = [], [], 0
    for number, size in enumerate(sizes, 1):
        held += size
        if 4 * held >= most or number == len(sizes):
            values.append(held)
            ready.append(number)
            held = 0
    return values, ready


Way = Callable[[Iterator[Array], SlowWire], Any]


def sized(bucketed: Callable[[Iterator[Array], SlowWire, int], Any], size: int) -> Way:
    """Return the exchange in buckets of at least ``size`` bytes."""
    return lambda gradients, wire: bucketed(gradients, wire, size)


def train(way: Way, sizes: Sequence[int], targets: Array, meant: tuple[list[int], list[int]]) -> Array:
    """Let ranks take three steps towards their targets' mean. Return each rank's parameters. Raises `Refused` unless
    each step starts the all-reduces that are ``meant``, and waits for none of them before the last gradient is ready.
    """
    ranks, borders = len(targets), np.cumsum(sizes)[:-1]
    meeting = Meeting(ranks)

    def run(rank: int) -> Array:
        params = np.zeros(sum(sizes), "f4")
        try:
            for turn in range(3):
                wire = SlowWire(rank, ranks, meeting)
                gradients = [g.copy() for g in np.split((turn + 1) * (params - targets[rank]), borders)]
                way(wire.gradients(gradients), wire)
                if wire.left:
                    raise Refused("it returns while an all-reduce is under way: wait for each future.")
                refuse_if(sum(wire.sizes) < sum(sizes), f"{sum(wire.sizes)} of {sum(sizes)} values travel in a step.")
                told = f"all-reduces of {wire.sizes} values are started; expected {meant[0]}."
                refuse_if(wire.sizes != meant[0], told)
                late = f"they are started when {wire.started} gradients are ready; expected {meant[1]}."
                refuse_if(wire.started != meant[1], late)
                refuse_if(min(wire.waited) < len(sizes), "it waits for an all-reduce during backward.")
                params -= np.float32(0.2) * np.concatenate(gradients)
            return params
        finally:
            meeting.leave(rank)

    with ThreadPoolExecutor(ranks) as pool:
        futures = [pool.submit(run, rank) for rank in range(ranks)]
        errors = [error for one in futures if (error := one.exception())]
    for error in sorted(errors, key=lambda error: isinstance(error, Deserted)):
        if isinstance(error, Deserted):
            raise Refused("the ranks do not all start the same all-reduces.")
        raise error
    return np.stack([one.result() for one in futures])


@asks(
    "ddp.3",
    "Flat: one array of all gradients, np.concatenate(list(gradients)). Its sum has to return into the gradients, "
    "piece by piece, divided by wire.ranks.",
    "Overlapped: call wire.start(g) inside a loop over gradients, keep the futures, and wait for them in a second "
    "loop. A gradient may be read only after its future's result().",
    "Bucketed: append g to a list; if the list has `size` bytes or more, start its copy, keep list, copy and future "
    "together, and begin a new list. Do not forget the last list, which may be smaller.",
    beside=True,
)
def exchanges(ways: Any, rng: np.random.Generator) -> str:
    """Write four exchanges that replace each rank's gradients by the mean over all ranks."""
    right = isinstance(ways, tuple) and len(ways) == 4 and all(map(callable, ways))
    refuse_if(not right, f"Expected (naive, flat, overlapped, bucketed), got {ways!r}.")
    naive, flat, overlapped, bucketed = ways
    for trial in range(6):
        ranks = (2, 1, 3, int(rng.integers(2, 5)))[trial % 4]
        sizes = rng.integers(1, 9, 1 if trial == 4 else int(rng.integers(5, 10))).tolist()
        edge = 4 * sum(sizes[: len(sizes) // 2 + 1])  # a bucket that is full to the byte
        targets = (0.3 * rng.normal(size=(ranks, sum(sizes)))).astype("f4")
        means, expected = targets.mean(axis=0, dtype=float), np.zeros(sum(sizes))
        for turn in range(3):
            expected -= 0.2 * (turn + 1) * (expected - means)
        after = [len(sizes)] * len(sizes)
        tried: list[tuple[str, Way, tuple[list[int], list[int]]]] = [
            ("naive", naive, (sizes, after)),
            ("flat", flat, ([sum(sizes)], after[:1])),
            ("overlapped", overlapped, partition(sizes, 0)),
        ]
        for most in (edge, int(rng.integers(8, 60)), edge + 1, 1000):
            tried.append((f"bucketed with size={most}", sized(bucketed, most), partition(sizes, most)))
        for name, way, meant in tried:
            with case(f"{name}, with {ranks} ranks and gradients of {sizes} values:"):
                found = train(way, sizes, targets, meant)
                off = float(np.abs(found - expected).max())
                refuse_if(not off <= 1e-6, f"after three steps the parameters are off by {off:.2g}.")
    return "Four exchanges, and the same parameters to 1e-6 after three steps."


@asks(
    "ddp.2",
    "Quantize the sum of the gradient and the held values. Then hold this sum minus the values that were sent.",
    "DDP calls the hook for each bucket. group.bucket is its number, and buckets differ in length.",
    "Read self.held.get(group.bucket, 0) before the call of coarse, and set self.held[group.bucket] after it.",
    beside=True,
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
