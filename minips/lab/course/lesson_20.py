"""Lesson 20: a deep net under DDP."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from minips.lab.course.exercises import Refused, asks, case, refuse_if
from minips.lab.course.questions import (
    Expected,
    Item,
    Option,
    estimate,
    prompt,
    quiz,
    sentence,
    timed_question,
    timed_sentence,
)
from minips.stage import Array

WAIT_S = 5.0
"""How long a rank of a check waits for the others."""

timed_question(
    "20.1",
    "DDP with buckets of its own size, one step of this net: when does the first all-reduce begin?",
    Option(
        "with the first gradient that is ready",
        lambda first, last, begin: begin < first + 0.25 * (last - first),
        "Each gradient travelled by itself, as soon as it was there.",
    ),
    Option(
        "in the middle of backward",
        lambda first, last, begin: first + 0.25 * (last - first) <= begin < last,
        "A first bucket was full when some of the gradients were there.",
    ),
    Expected(
        "after the last gradient is ready",
        lambda first, last, begin: begin >= last,
        "A bucket travels when it is full. The smallest one that DDP makes by itself holds 1 MB, and all gradients of "
        "this net together are 0.15 MB. So all of them are in one bucket, which is full with the last one.",
    ),
    otherwise="No all-reduce was seen.",
)

estimate(
    "20.2",
    "60 steps with torch's PowerSGD of rank 2: how many percent of the gradients' bytes does a rank hand over in all?",
    "%",
    expected=(10.0, 35.0),
    because="The matrix of 64 × 512 values travels as two thin ones, 64 × 2 and 512 × 2: 28 times fewer. But the first "
    "ten of the 60 steps travel whole, a sixth of all bytes.",
    otherwise="The thin matrices, or the steps that travel whole, weighed otherwise.",
)

sentence(
    "20.1",
    "The mean gradient of each way differs from that of one process on all the rows by {error:.0e} at most.",
    expect="error < 1e-5",
)

timed_sentence(
    "20.2",
    "From the last gradient to the end of the step, in milliseconds, mean of five turns, each its shortest of six "
    "steps: {told}.",
)

timed_sentence(
    "20.3",
    "With one buffer for all, this wait is {flat:.2f} ± {flat_half:.2f} times that of the naive way; with small "
    "buckets it is {small:.2f} ± {small_half:.2f} times.",
    expect="small < flat < 1",
)

timed_sentence(
    "20.6",
    "The shortest mean wait of this run: buckets of {best}, {calls} all-reduces in a step.",
    expect="calls > 1",
)

sentence(
    "20.4",
    "Top 2 %: {plain:.0f} ± {plain_half:.0f} % of the digits without a memory, {fed:.0f} ± {fed_half:.0f} % with it.",
    expect="fed - fed_half > plain + plain_half",
)

sentence(
    "20.5",
    "torch's fp16 hands over {share:.0%} of the bytes. Its accuracy minus that of the plain all-reduce: {points:+.1f} "
    "± {half:.1f} percentage points (five seeds, paired).",
    expect="abs(points) <= half + 0.5",
)

prompt(
    "20.1",
    "This net on a link of 10 Mbit/s: which hook do you take, by which numbers of the table? What would change your "
    "mind? Two sentences.",
    "I take the top 2 % with a memory, for it hands over the fewest bytes, and what it loses against the plain "
    "all-reduce is in the last row. On a fast link I would take none, since encoding takes time, too.",
)

quiz(
    "20",
    Item(
        "Why is one buffer for all tensors faster than an all-reduce for each?",
        {
            "the latency is paid once, not for each tensor": "The bytes are the same. Each all-reduce has its latency.",
            "one buffer has fewer bytes than its tensors": "It has exactly their bytes.",
            "one buffer can be sent during backward": "It can only be sent when the last gradient is in it.",
        },
    ),
    Item(
        "What is the most that overlap can save in a step?",
        {
            "the shorter one of backward and communication": "At best the shorter one is hidden behind the longer one.",
            "all of the communication, however long it is": "What is longer than backward goes on after it.",
            "the latency of each all-reduce, but no byte": "Bytes travel during backward, too.",
        },
    ),
    Item(
        "All gradients of a net fit into one bucket of DDP. What follows?",
        {
            "nothing overlaps, for it is full with the last gradient": "It is the flat way. Smaller buckets would "
            "overlap.",
            "DDP cuts it, so that two halves can overlap": "It cuts no bucket. Its size is yours to choose.",
            "each tensor travels as soon as it is ready": "A bucket travels whole, when it is full.",
        },
    ),
    Item(
        "A hook sends float16. Why does it divide by the number of ranks before it sums?",
        {
            "a sum of several ranks may leave float16's range": "The mean lies within it, where each gradient does.",
            "float16 cannot be divided after it has travelled": "It can, but where the sum has overflowed it is too "
            "late.",
            "an all-reduce of torch always divides by itself": "It sums. The hook has to divide.",
        },
    ),
    Item(
        "Where is the state of an error-feedback hook kept?",
        {
            "at each rank, for its own gradients": "It holds what this rank's pushes did not bring.",
            "at rank 0, for the mean of all ranks": "The mean has lost what each rank left out.",
            "in DDP's buckets, which hold gradients only": "A bucket's buffer is written anew in each step.",
        },
    ),
)


class Member:
    """A rank of a group whose ranks are threads, for the checks: as `ddp_20.Group`, without torch."""

    def __init__(self, rank: int, shared: "list[Array | None]", barrier: threading.Barrier, bucket: int) -> None:
        self.size, self.bucket, self.sent = len(shared), bucket, 0
        self._rank, self._shared, self._barrier = rank, shared, barrier

    def all_reduce(self, array: Array) -> Array:
        """The sum over the ranks, in the array's own type."""
        mine = np.array(array)
        self.sent += mine.nbytes
        self._shared[self._rank] = mine
        self._barrier.wait()
        given = [one for one in self._shared if one is not None]
        self._barrier.wait()
        refuse_if(len({(one.shape, one.dtype) for one in given}) > 1, "the ranks hand over arrays of other kinds.")
        with np.errstate(over="ignore"):
            total = np.zeros_like(mine)
            for one in given:
                total += one
        return total


def together(calls: list[Callable[[Array, Member], Array]], gradients: list[Array], bucket: int = 0) -> list[Any]:
    """The results of all ranks' hooks, each of its own gradient, and the bytes that rank 0 handed over."""
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
                raise Refused("not every rank's hook calls all_reduce equally often.")
            raise error
    return [[one.result() for one in futures], members[0].sent]


@asks(
    "20.1",
    'Half of the bytes: float16, whose name in NumPy is "f2". And what comes back has to be a float32 again.',
    "all_reduce sums in the type that it is given. Where does a sum of several ranks leave float16's range, 65,504?",
    "Three things in this order: make the part of the mean that is this rank's, in fewer bits; sum; widen.",
)
def half(hook: Any, rng: np.random.Generator) -> str:
    """Write a hook that hands over float16, and returns the mean over the ranks in float32."""
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
                refuse_if(not isinstance(got, np.ndarray) or got.dtype != np.float32, "it returns no array of float32.")
                refuse_if(got.shape != mean.shape, f"it returns an array of the shape {got.shape}.")
                off = float(np.abs(got - mean).max())
                refuse_if(not off <= 2e-3 * scale, f"the mean is off by {off:.2g}.")
            refuse_if(
                any(not np.array_equal(a, b) for a, b in zip(gradients, before, strict=True)), "the gradient changed."
            )
    return "Half of the bytes, and the mean of all ranks in float32."


@asks(
    "20.2",
    "What is quantized is the gradient plus what was held. What is held next is that minus what was sent.",
    "DDP calls the hook for each bucket. group.bucket is its number, and buckets have lengths of their own.",
    "self.held.get(group.bucket, 0) before the call, and one line that sets self.held[group.bucket] after it.",
)
def remembers(cls: Any, rng: np.random.Generator) -> str:
    """Give a hook a memory: what a rank did not send is added to its next gradient of the same bucket."""
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
