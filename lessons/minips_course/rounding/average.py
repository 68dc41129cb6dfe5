"""How far the mean of n rounded gradients is from the gradient, for n workers."""

from collections.abc import Sequence
from functools import cache, lru_cache

import numpy as np

import minips as ps
from minips.stage import Array

MOST = 1024
"""The most workers."""
COUNTS = tuple(2**power for power in range(11))
"""1, 2, 4, … 1024 workers."""
ROWS = {"the same": 0, "32 rows each": 32, "256 rows each": 256, "1024 rows each": 1024}
"""Maps what the workers hold to the rows that each has; 0: all of them hold the gradient of the same 32."""
GRIDS = ("own", "common")


@cache
def problem() -> ps.SoftmaxRegression:
    """Softmax regression on the digits."""
    return ps.SoftmaxRegression(*ps.datasets.digits())


def gradient(rows: Array | slice | None) -> Array:
    """The gradient of `W` over these rows, or over all of them, before the first step; float64."""
    return np.asarray(problem().gradient(problem().init(None), rows)["W"].reshape(-1).astype("f8"))


@cache
def gradients(held: str) -> tuple[Array, Array]:
    """The workers' gradients, shape (1024, 640), and the gradient with which their mean is compared."""
    if not ROWS[held]:
        x = gradient(slice(0, 32))
        return np.broadcast_to(x, (MOST, x.size)), x
    rng = np.random.default_rng(0)
    batches = [rng.choice(problem().rows, ROWS[held], replace=False) for _ in range(MOST)]
    return np.array([gradient(rows) for rows in batches]), gradient(None)


@lru_cache(maxsize=4)
def deviations(held: str, grid: str, levels: int, shift: float) -> dict[str, Array]:
    """Each worker's gradient minus the true one: rounded in both ways, and as it is.

    On its own grid, a gradient's levels reach from its smallest to its largest value. The common grid reaches from the
    mean of the smallest values to the mean of the largest ones, moved by ``shift`` steps, and goes on beyond them.
    """
    x, truth = gradients(held)
    low, high = x.min(axis=1, keepdims=True), x.max(axis=1, keepdims=True)
    if grid == "common":
        low, high = low.mean(), high.mean()
    step = (high - low) / (levels - 1)
    low = low + (grid == "common") * shift * step
    r, noise = (x - low) / step, np.random.default_rng(3).random(x.shape)
    rounded = {"nearest": np.rint(r), "random": np.floor(r + noise)}
    return {**{way: low + step * codes - truth for way, codes in rounded.items()}, "unrounded": x - truth}


def errors(
    held: str, grid: str = "own", levels: int = 8, shift: float = 0.0, counts: Sequence[int] = COUNTS
) -> dict[str, Array]:
    """The relative error of the mean of n gradients, for each n in ``counts``: the root mean square over groups."""
    length = np.linalg.norm(gradients(held)[1])
    away = deviations(held, grid, levels, shift)
    return {way: np.array([_of_means(apart, n) for n in counts]) / length for way, apart in away.items()}


def error_of(way: str, workers: int, held: str, grid: str = "own", shift: float = 0.0) -> float:
    """The relative error of one way with eight levels, for one number of workers."""
    return float(errors(held, grid, 8, shift, (workers,))[way][0])


def dithered(scale: str, block: int, levels: int = 3) -> tuple[float, int]:
    """Random rounding of the lesson's gradient to ``levels`` above zero and below it, the last of which is the length
    or the largest magnitude of a block: the relative error of a copy, and the first of 1, 2, 4, … workers whose mean
    is nearer than nearest rounding on eight levels (0 if none is).
    """
    x = gradient(slice(0, 32))
    starts = np.arange(0, x.size, block)
    sums = np.sqrt(np.add.reduceat(x * x, starts)) if scale == "length" else np.maximum.reduceat(np.abs(x), starts)
    step = np.repeat(np.maximum(sums, 1e-30) / levels, block)[: x.size]
    copies = np.floor(x / step + np.random.default_rng(3).random((MOST, x.size))) * step - x
    found = [_of_means(copies, n) / float(np.linalg.norm(x)) for n in COUNTS]
    nearest = error_of("nearest", 1, "the same")
    return found[0], next((n for n, error in zip(COUNTS, found, strict=True) if error < nearest), 0)


def kept(quantizer: ps.Quantizer) -> float:
    """The share of the step along the lesson's gradient that is left after a quantizer."""
    x = gradient(slice(0, 32))
    return float(np.vdot(quantizer.decode(quantizer.encode(x, None)), x) / np.vdot(x, x))


def _of_means(away: Array, n: int) -> float:
    """The root mean square length of the means of groups of n."""
    groups = away[: len(away) // n * n].reshape(-1, n, away.shape[1])
    return float(np.sqrt((groups.mean(axis=1) ** 2).sum(axis=1).mean()))
