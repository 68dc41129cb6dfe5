"""How far the mean of n rounded gradients is from the gradient, for n workers."""

from collections.abc import Mapping, Sequence
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
    return np.asarray(problem().gradient(problem().init(np.random.default_rng(0)), rows)["W"].reshape(-1).astype("f8"))


@cache
def _of_each_row() -> Array:
    """The gradient of each training row, shape (1438, 640)."""
    return np.array([gradient(slice(row, row + 1)) for row in range(problem().rows)])


@cache
def gradients(held: str) -> tuple[Array, Array]:
    """The workers' gradients, shape (1024, 640), and the gradient with which their mean is compared."""
    if not ROWS[held]:
        x = gradient(slice(0, 32))
        return np.broadcast_to(x, (MOST, x.size)), x
    rng, shares = np.random.default_rng(0), np.zeros((MOST, problem().rows))
    for share in shares:
        share[rng.choice(problem().rows, ROWS[held], replace=False)] = 1 / ROWS[held]
    return shares @ _of_each_row(), gradient(None)


@lru_cache(maxsize=4)
def deviations(held: str, grid: str, levels: int, shift: float) -> dict[str, Array]:
    """Each worker's gradient minus the true one: rounded in both ways, and as it is.

    On its own grid, a gradient's levels reach from its smallest to its largest value. The common grid reaches from the
    mean of the smallest values to the mean of the largest ones, moved by ``shift`` steps, and goes on beyond them.
    """
    x, truth = gradients(held)
    low, high = x.min(axis=1, keepdims=True), x.max(axis=1, keepdims=True)
    if grid == "common":
        low, high = np.asarray(low.mean()), np.asarray(high.mean())
    step = (high - low) / (levels - 1)
    low = low + (grid == "common") * shift * step
    r, noise = (x - low) / step, np.random.default_rng(3).random(x.shape)
    rounded = {"nearest": np.rint(r), "at_random": np.floor(r + noise)}
    return {**{way: low + step * codes - truth for way, codes in rounded.items()}, "unrounded": x - truth}


def errors(
    held: str, grid: str = "own", levels: int = 8, shift: float = 0.0, counts: Sequence[int] = COUNTS
) -> dict[str, Array]:
    """The relative error of the mean of n gradients, for each n in ``counts``: the root mean square over groups."""
    length = np.linalg.norm(gradients(held)[1])
    away = deviations(held, grid, levels, shift)
    return {way: np.array([_of_means(apart, n) for n in counts]) / length for way, apart in away.items()}


def at(workers: int, held: str, grid: str = "own", shift: float = 0.0) -> dict[str, float]:
    """The relative errors with eight levels, for one number of workers."""
    return {way: float(one) for way, (one,) in errors(held, grid, 8, shift, (workers,)).items()}


def over_places() -> dict[str, float]:
    """The least and the largest error of 256 workers with 32 rows each, over eight places of the common grid."""
    places = [at(256, "32 rows each", "common", eighth / 8) for eighth in range(8)]
    nearest, at_random = ([place[way] for place in places] for way in ("nearest", "at_random"))
    return {"low": min(nearest), "high": max(nearest), "random_low": min(at_random), "random_high": max(at_random)}


def parts_of(found: Mapping[str, Array]) -> dict[str, float]:
    """The bias² of nearest rounding, the variance of random rounding, and what the latter leaves of 16 copies."""
    variance = float(found["at_random"][0] ** 2)
    sixteen = {"formula": variance / 16, "measured": float(found["at_random"][COUNTS.index(16)] ** 2)}
    return {"bias": float(found["nearest"][0] ** 2), "variance": variance, **sixteen}


def qsgd(block: int, levels: int = 3) -> dict[str, float]:
    """Random rounding of the lesson's gradient to ``levels`` above zero and below it. The last level is the length, or
    the largest magnitude of all, or of each block. Of each: the relative error of a copy, and the first of 1, 2, 4, …
    workers whose mean is nearer than nearest rounding on eight levels.
    """
    x = gradient(slice(0, 32))
    nearest, found = errors("the same")["nearest"], list[tuple[float, float]]()
    for size in (0, x.size, block):
        starts = np.arange(0, x.size, size or x.size)
        last = np.maximum.reduceat(np.abs(x), starts) if size else np.array([np.linalg.norm(x)])
        step = np.repeat(np.maximum(last, 1e-30) / levels, size or x.size)[: x.size]
        away = np.floor(x / step + np.random.default_rng(3).random((MOST, x.size))) * step - x
        curve = np.array([_of_means(away, n) for n in COUNTS]) / np.linalg.norm(x)
        found.append((float(curve[0]), first_below({"nearest": nearest, "at_random": curve})))
    (length, first), (largest, second), (blocks, third) = found
    return {"length": length, "largest": largest, "blocks": blocks, "first": first, "second": second, "third": third}


def first_below(found: Mapping[str, Array]) -> float:
    """The first of 1, 2, 4, … 1024 workers whose mean is nearer with random rounding; infinite if there is none."""
    nearer = found["at_random"] < found["nearest"]
    return next((n for n, one in zip(COUNTS, nearer, strict=True) if one), np.inf)


def kept(*quantizers: ps.Quantizer) -> dict[str, float]:
    """The share of the step along the lesson's gradient that each quantizer leaves, by its name."""
    x = gradient(slice(0, 32))
    decoded = {one.name: one.decode(one.encode(x, None)) for one in quantizers}
    return {name: float(np.vdot(y, x) / np.vdot(x, x)) for name, y in decoded.items()}


def _of_means(away: Array, n: int) -> float:
    """The root mean square length of the means of groups of n."""
    groups = away[: len(away) // n * n].reshape(-1, n, away.shape[1])
    return float(np.sqrt((groups.mean(axis=1) ** 2).sum(axis=1).mean()))
