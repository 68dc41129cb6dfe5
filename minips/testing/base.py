"""The checks' common parts: ways to fail with a sentence, and to compare to the bit."""

import random
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import numpy as np

from minips.stage import Array

WAIT_S = 30.0
"""No check waits longer than this for anything."""

UNUSUAL_SEED = 1_618_033_988


def require(truth: object, sentence: str) -> None:
    """AssertionError with the sentence where ``truth`` is not true. Unlike ``assert`` it also works under -O."""
    if not truth:
        raise AssertionError(sentence)


@contextmanager
def doing(what: str, outcome: str = "it raised") -> Iterator[None]:
    """An error within becomes an AssertionError that starts with ``what``, and says its type after ``outcome``."""
    try:
        yield
    except AssertionError as error:
        raise AssertionError(f"{what}: {error}") from error
    except Exception as error:
        hint = " It writes into an array that it was given; copy first." if "read-only" in str(error) else ""
        raise AssertionError(f"{what}: {outcome} {type(error).__name__}: {error}{hint}") from error


@contextmanager
def strictly(what: str) -> Iterator[None]:
    """The same, where a warning is a failure too."""
    with doing(what), warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@contextmanager
def refusing(what: str, kind: type[Exception], mentions: str = "") -> Iterator[None]:
    """Require that the block raises ``kind``, with a sentence that contains ``mentions``."""
    with doing(what, f"expected {kind.__name__}, got"):
        try:
            yield
        except kind as error:
            said = str(error)
        else:
            raise AssertionError(f"expected {kind.__name__}, and nothing was raised.")
        require(said, f"the {kind.__name__} has no text; say what was got and what to do.")
        require(mentions in said, f"the {kind.__name__} should mention {mentions!r}; it says: {said}")


@contextmanager
def failing_only_with(kind: type[Exception], what: str) -> Iterator[None]:
    """Require that the block raises nothing but ``kind``."""
    with doing(what, f"expected {kind.__name__}, got"), suppress(kind), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def without_global_draws(what: str) -> Iterator[None]:
    """Require that the block leaves the global generators of NumPy and of Python alone. They end as they were."""
    states = np.random.get_state(), random.getstate()
    np.random.seed(UNUSUAL_SEED)  # a state that no block sets by chance
    random.seed(UNUSUAL_SEED)
    before = _global_generators()
    try:
        yield
        alone = _global_generators() == before
        require(alone, f"{what} uses a global generator; draw from the rng that it is given alone.")
    finally:
        np.random.set_state(states[0])
        random.setstate(states[1])


def _global_generators() -> tuple[object, ...]:
    name, keys, *rest = np.random.get_state()
    return name, np.asarray(keys).tobytes(), *rest, random.getstate()


def same_bits(a: Array, b: Array) -> bool:
    """True where dtype, shape and every bit agree; NaN equals itself, and −0 differs from 0."""
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def unwritable(x: Array) -> Array:
    """A view of ``x`` that refuses to be written to, as an array out of a received message may."""
    view = x.view()
    view.flags.writeable = False
    return view


def described(x: Array) -> str:
    """Shape and dtype in words, and the values where they are few."""
    values = f" {np.array2string(x, threshold=8)}" if x.size <= 4 else ""
    return f"{x.dtype} of shape {x.shape}{values}"
