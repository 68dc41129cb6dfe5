"""Random streams: a separate stream for each use, so that no two uses draw the same numbers.

Every stream of a run is derived from `Config.seed` and its use. A generator is seeded by the words (seed, first,
second, use, …). The fourth word identifies the use, and only this file assigns it. So two streams of one seed differ in
at least one word, and NumPy's ``SeedSequence`` gives them independent states.
"""

import zlib
from collections.abc import Callable

import numpy as np


def _stream(use: int) -> Callable[..., np.random.Generator]:
    def generator(seed: int, first: int = 0, second: int = 0, *more: int) -> np.random.Generator:
        return np.random.default_rng([seed, first, second, use, *more])

    return generator


batch = _stream(0)
"""The rows of a batch, by (seed, worker, clock, turn); ``turn`` counts the batches of one push."""
delay = _stream(1)
"""How long a delayed worker computes (`Delays.exponential`), by (seed, worker, clock)."""
push = _stream(2)
"""The quantizer of a worker's pushes to a server, by (seed, worker, server)."""
pull = _stream(3)
"""The quantizer of an answer to one worker (with rows or a memory), by (seed, worker, server)."""
all_reduce = _stream(4)
"""The quantizer of a rank's hops, by (seed, rank)."""
shared_pull = _stream(5)
"""The quantizer of a server's answers to all the workers, by (seed, server)."""
loss = _stream(6)
"""The choice of packets that a simulated network loses, by (seed)."""
compute = _stream(7)
"""How long a simulated worker computes (`Simulated.exponential`), by (seed, worker, clock)."""
init = _stream(8)
"""The parameters before the first step (`Problem.init`), by (seed)."""
synthetic = _stream(9)
"""The rows of `datasets.synthetic` and the choice of held-out ones, by (seed)."""
fourier = _stream(10)
"""The directions and phases of `datasets.fourier`, by (seed)."""
epoch = _stream(12)
"""The order of a worker's rows in one pass over them (`Config.sampling`), by (seed, worker, epoch)."""
gradient = _stream(13)
"""A problem's random draws for one gradient, such as dropout, by (seed, worker, clock, turn)."""
statistics = _stream(14)
"""A network's random draws while it computes statistics of the training rows (`TorchProblem.module`), by (seed)."""
clicks = _stream(15)
"""The rows of `datasets.clicks` and the choice of held-out ones, by (seed)."""
shards = _stream(16)
"""The assignment of rows to workers (`Config.shards`), by (seed)."""
wake = _stream(17)
"""The wake-up order of a server's threads, in predictions for the engine `Hosts`, by (seed, server)."""
cut = _stream(18)
"""The messages behind which a connection breaks (`Faults.cut`), by (seed, worker, server, life, 0 or 1: answers)."""
late = _stream(19)
"""How late messages are (`Faults.delay_s`), by (seed, sender, receiver), which count workers first, then servers."""


def split(seed: int) -> np.random.Generator:
    """A bundled data set's held-out rows, by (seed). NumPy pads this to (seed, 0, 0, 0), which no other stream has."""
    return np.random.default_rng(seed)


def options(question: str) -> np.random.Generator:
    """The stream that orders the options of a lesson's question."""
    return _stream(11)(zlib.crc32(question.encode()))
