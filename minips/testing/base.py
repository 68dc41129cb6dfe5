"""Functions that all checks share: they raise errors with a sentence, and compare values to the bit."""

import random
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import numpy as np

from minips.stage import Array

WAIT_S = 30.0
"""The longest wait of any check, in seconds."""

UNUSUAL_SEED = 1_618_033_988


def require(truth: object, sentence: str) -> None:
    """Raise AssertionError with the sentence unless ``truth`` is true. Unlike ``assert``, this also works under -O."""
    if not truth:
        raise AssertionError(sentence)


@contextmanager
def doing(what: str, outcome: str = "it raised") -> Iterator[None]:
    """Turn an error in the block into an AssertionError with ``what``, ``outcome``, and the error's type and text."""
    try:
        yield
    except AssertionError as error:
        raise AssertionError(f"{what}: {error}") from error
    except Exception as error:
        hint = " It writes into an array that was passed to it; copy first." if "read-only" in str(error) else ""
        raise AssertionError(f"{what}: {outcome} {type(error).__name__}: {error}{hint}") from error


@contextmanager
def strictly(what: str) -> Iterator[None]:
    """Do the same as `doing`, and turn warnings into errors."""
    with doing(what), warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@contextmanager
def refusing(what: str, kind: type[Exception], mentions: str = "") -> Iterator[None]:
    """Require that the block raises ``kind`` with a sentence that contains ``mentions``."""
    with doing(what, f"expected {kind.__name__}, got"):
        try:
            yield
        except kind as error:
            said = str(error)
        else:
            raise AssertionError(f"expected {kind.__name__}, and nothing was raised.")
        require(said, f"the {kind.__name__} has no text; state what was received and what to do.")
        require(mentions in said, f"the {kind.__name__} should mention {mentions!r}; it says: {said}")


@contextmanager
def failing_only_with(kind: type[Exception], what: str) -> Iterator[None]:
    """Require that the block raises no exception other than ``kind``."""
    with doing(what, f"expected {kind.__name__}, got"), suppress(kind), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def without_global_draws(what: str) -> Iterator[None]:
    """Require that the block does not use the global generators of NumPy and Python; then restore their states."""
    states = np.random.get_state(), random.getstate()
    np.random.seed(UNUSUAL_SEED)  # a state that a block is unlikely to set by chance
    random.seed(UNUSUAL_SEED)
    before = _global_generators()
    try:
        yield
        alone = _global_generators() == before
        require(alone, f"{what} uses a global generator; draw only from the rng that is passed to it.")
    finally:
        np.random.set_state(states[0])
        random.setstate(states[1])


def _global_generators() -> tuple[object, ...]:
    name, keys, *rest = np.random.get_state()
    return name, np.asarray(keys).tobytes(), *rest, random.getstate()


def same_bits(a: Array, b: Array) -> bool:
    """Return True if dtype, shape and every bit agree; NaN equals itself, and −0 differs from 0."""
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def unwritable(x: Array) -> Array:
    """Return a read-only view of ``x``; an array from a received message may also be read-only."""
    view = x.view()
    view.flags.writeable = False
    return view


def described(x: Array) -> str:
    """Describe an array's dtype and shape in words, with up to four values."""
    values = f" {np.array2string(x, threshold=8)}" if x.size <= 4 else ""
    return f"{x.dtype} of shape {x.shape}{values}"
