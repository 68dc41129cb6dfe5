"""Random streams: one function for each use, so that no two uses can draw the same numbers.

Every stream of a run follows from `Config.seed` and from where it is used. The words that seed a generator are (seed,
first, second, use, …): the fourth names the use and is given out here alone. That makes two streams of one seed differ
in at least one word, which NumPy's ``SeedSequence`` turns into independent states.
"""

import zlib

import numpy as np

_BATCH, _DELAY, _PUSH, _PULL, _ALL_REDUCE, _SHARED_PULL, _LOSS, _COMPUTE, _INIT, _SYNTHETIC, _FOURIER = range(11)
_OPTIONS = 11


def batch(seed: int, worker: int, clock: int, turn: int) -> np.random.Generator:
    """Which rows a worker's batch has; ``turn`` counts the batches of one push."""
    return _stream(_BATCH, seed, worker, clock, turn)


def delay(seed: int, worker: int, clock: int) -> np.random.Generator:
    """How long a delayed worker computes (`Delays.exponential`)."""
    return _stream(_DELAY, seed, worker, clock)


def push(seed: int, worker: int, server: int) -> np.random.Generator:
    """The quantizer of what a worker pushes to a server."""
    return _stream(_PUSH, seed, worker, server)


def pull(seed: int, server: int, worker: int) -> np.random.Generator:
    """The quantizer of what a server answers to one worker, where the pull codec has a memory for each."""
    return _stream(_PULL, seed, worker, server)


def shared_pull(seed: int, server: int) -> np.random.Generator:
    """The quantizer of what a server answers to all the workers."""
    return _stream(_SHARED_PULL, seed, server)


def all_reduce(seed: int, rank: int) -> np.random.Generator:
    """The quantizer of a rank's hops."""
    return _stream(_ALL_REDUCE, seed, rank)


def loss(seed: int) -> np.random.Generator:
    """Which packets a simulated network loses."""
    return _stream(_LOSS, seed)


def compute(seed: int, worker: int, clock: int) -> np.random.Generator:
    """How long a simulated worker computes (`Simulated.exponential`)."""
    return _stream(_COMPUTE, seed, worker, clock)


def init(seed: int) -> np.random.Generator:
    """The parameters before the first step (`Problem.init`)."""
    return _stream(_INIT, seed)


def split(seed: int) -> np.random.Generator:
    """Which rows of a bundled data set are held out. Its words are the seed alone: no other stream has four and ends in
    0.
    """
    return np.random.default_rng(seed)


def synthetic(seed: int) -> np.random.Generator:
    """The rows of `datasets.synthetic`, and which of them are held out."""
    return _stream(_SYNTHETIC, seed)


def fourier(seed: int) -> np.random.Generator:
    """The directions and phases of `datasets.fourier`."""
    return _stream(_FOURIER, seed)


def options(question: str) -> np.random.Generator:
    """The order in which a lesson's question shows its options."""
    return _stream(_OPTIONS, zlib.crc32(question.encode()))


def _stream(use: int, seed: int, first: int = 0, second: int = 0, *more: int) -> np.random.Generator:
    return np.random.default_rng([seed, first, second, use, *more])
