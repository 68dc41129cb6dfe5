"""Checks that a random quantizer's mean and variance are as promised."""

import math
from collections.abc import Iterator

import numpy as np

from minips.stage import Array
from minips.stages.quantizers import Quantizer
from minips.testing.base import described, require, strictly

DRAWS = 200
STANDARD_ERRORS = 6.0
"""The maximum deviation of a mean over the draws, in standard errors. By chance, 1 mean in 500 million exceeds it."""
FORMULA = 0.01
"""The relative error that a stated variance may have, since probabilities are rounded."""


def check_draws(quantizer: Quantizer, seed: int = 0) -> None:
    """Check a random quantizer's promised mean, variance and largest error with draws from ``seed``."""
    for name, x, light in spreads(seed):
        with strictly(f"{quantizer!r} with {name} values, {described(x)}, over {DRAWS} draws"):
            omega = quantizer.relative_variance(x)
            if not omega and not _draws(quantizer, x):
                continue
            errors = _errors(quantizer, x, seed)
            require_bound(quantizer, x, float(np.abs(errors).max()))
            if omega:
                errors /= np.linalg.norm(x.astype(float))
                _check_mean(errors)
                if light:
                    _check_variance(errors, omega)


def spreads(seed: int) -> Iterator[tuple[str, Array, bool]]:
    """Yield a name, an array of many values, and True, or False if a few values dominate the norm and variance."""
    rng = np.random.default_rng([9, seed])
    yield "ordinary", rng.standard_normal(1000), True
    yield "evenly spread", np.linspace(-1, 1, 1000, dtype=np.float32), True
    yield "ordinary", rng.standard_normal((20, 30)).astype(np.float32), True
    yield "very unequal", rng.standard_normal(1000) ** 3, False


def _draws(quantizer: Quantizer, x: Array) -> bool:
    rng = np.random.default_rng(0)
    before = str(rng.bit_generator.state)
    quantizer.encode(x, rng)
    return str(rng.bit_generator.state) != before


def require_bound(quantizer: Quantizer, x: Array, error: float) -> None:
    """Raise AssertionError if the error exceeds the quantizer's bound by more than rounding."""
    bound = quantizer.error_bound(x)
    if bound is None:
        return
    number = isinstance(bound, int | float | np.number) and 0 <= bound < math.inf
    require(number, f"error_bound returned {bound}; expected None or a number from 0.")
    rounding = float(np.finfo(x.dtype).eps) * float(np.abs(x).max(initial=0)) if bound else 0.0
    require(error <= bound * (1 + 1e-6) + rounding, f"the error is {error:g}, error_bound says {bound:g}.")


def _errors(quantizer: Quantizer, x: Array, seed: int) -> Array:
    """Return the errors of the draws, flattened, with shape (draws, values)."""
    generators = (np.random.default_rng([seed, draw]) for draw in range(DRAWS))
    drawn = [quantizer.decode(quantizer.encode(x, rng)) for rng in generators]
    return np.stack(drawn).reshape(DRAWS, -1).astype(float) - x.reshape(-1)


def _check_mean(errors: Array) -> None:
    """Check that the errors have mean 0: if so, the products of two independent draws' errors also have mean 0.

    The sum over all pairs is compared with its standard deviation. It is distributed like ``(χ² − 1) / √2`` with one
    degree of freedom if all errors lie on one line, and otherwise has lighter tails.
    """
    products = errors @ errors.T
    np.fill_diagonal(products, 0)
    limit = (STANDARD_ERRORS**2 - 1) / math.sqrt(2) * math.sqrt(2 * float(np.square(products).sum()))
    off = math.sqrt(max(float(products.sum()), 0.0) / (DRAWS * (DRAWS - 1)))
    said = "it states a relative_variance, which is for schemes whose mean is the array itself"
    require(products.sum() <= limit, f"{said}; the mean of the draws is off by {off:.3g} of its norm: it is biased.")


def _check_variance(errors: Array, omega: float) -> None:
    squares = np.square(errors).sum(axis=1)
    found, deviation = float(squares.mean()), float(squares.std(ddof=1))
    near = abs(found - omega) <= STANDARD_ERRORS * deviation / math.sqrt(DRAWS) + FORMULA * omega
    require(near, f"relative_variance says {omega:.4g}; over the draws |C(x) − x|² / |x|² is {found:.4g} on average.")
