"""The border of a rule: the largest stable lr · λ, measured under the times of its workers' steps. And the ages of the
gradients in the order of their pushes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

import minips as ps
from minips.stage import Tensors

VIRTUAL = ps.Simulated(abandon=False)
LOW, HIGH, CLOSE = 0.0312, 8.0, 1.03
"""Between which values a border is sought, and how close."""


def _patients() -> tuple[ps.LinearRegression, float]:
    data = ps.datasets.diabetes(dtype="float64")
    rows = np.c_[data.X, np.ones(len(data.X))]
    curvature = np.linalg.eigvalsh(rows.T @ rows / len(rows)).max()
    return ps.LinearRegression(np.tile(data.X, (4, 1)), np.tile(data.y, 4)), float(curvature)


PATIENTS, CURVATURE = _patients()
"""All the patients of lesson 02 for each of four workers, and the largest curvature λ of their loss."""
LEAST = PATIENTS.loss(PATIENTS.solution())
"""The least loss of the patients."""


def train(
    rate: float, rule: ps.Consistency, delays: ps.Delays, momentum: float = 0.0, seed: int = 0, **how: Any
) -> ps.Run:
    """Train with lr · λ = ``rate`` and with exact gradients, in virtual time unless ``how`` has another engine."""
    sgd = ps.SGD(lr=rate / CURVATURE, momentum=momentum)
    fields: dict[str, Any] = {"steps": 60, "batch_size": None, "seed": seed} | how
    engine = fields.pop("engine", VIRTUAL)
    return ps.train(
        PATIENTS, ps.Config(workers=4, delays=delays, consistency=rule, optimizer=sgd, **fields), engine=engine
    )


def falls(rate: float, rule: ps.Consistency, delays: ps.Delays, momentum: float = 0.0, seeds: int = 5) -> bool:
    """Does the loss fall from the first step to the last, with each seed?"""
    runs = (train(rate, rule, delays, momentum, seed) for seed in range(seeds))
    return all(run.losses[-1][2] < run.losses[0][2] for run in runs)


@cache
def _halved(rule: ps.Consistency, exponential: bool, slow: tuple[Any, ...], momentum: float, seeds: int) -> float:
    delays = ps.Delays(seconds=0.01, exponential=exponential, slow=dict(slow))
    low, high = LOW, HIGH
    while high > CLOSE * low:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if falls(middle, rule, delays, momentum, seeds) else (low, middle)
    return low


def border(rule: ps.Consistency, delays: ps.Delays, momentum: float = 0.0, seeds: int = 5) -> float:
    """Return the largest lr · λ, to 3 %, at which the loss falls under these times: by halving, as in lesson 02."""
    if not delays.exponential:
        seeds = 1  # no time is drawn, and no gradient has noise: all seeds are alike
    return _halved(rule, delays.exponential, tuple(delays.slow.items()), momentum, seeds)


def ages(delays: ps.Delays, steps: int = 60) -> list[int]:
    """Return the ages of ASP's gradients, in the order of their pushes, in a run with these times."""
    seen: list[int] = []

    @dataclass(frozen=True)
    class Seen(ps.Mean):
        """The mean, which writes the ages down."""

        def combine(self, contributions: Any) -> Tensors:
            seen.extend(one.staleness for one in contributions)
            return super().combine(contributions)

    train(0.1, ps.ASP(), delays, steps=steps, aggregator=Seen())
    return seen


def tuned(
    config: ps.Config, momenta: Sequence[float], rules: Mapping[str, ps.Consistency]
) -> dict[str, list[ps.Config]]:
    """Return, for each rule, the config with each of these momenta."""
    moved = [replace(config, optimizer=ps.SGD(momentum=momentum)) for momentum in momenta]
    return {name: [replace(one, consistency=rule) for one in moved] for name, rule in rules.items()}


def plain(config: ps.Config, rules: Mapping[str, ps.Consistency]) -> dict[str, list[ps.Config]]:
    """Return, for each rule, the config without momentum, under a name that says so."""
    return {f"{name}, no momentum": configs for name, configs in tuned(config, (0.0,), rules).items()}


def ages_say(ages: Sequence[int]) -> dict[str, float]:
    """Return the values of the sentence about ages, of the run with random times."""
    return {"mixed": float(np.mean(ages)), "young": float(np.mean(np.array(ages) <= 2)), "oldest": max(ages)}


def digits_say(constant: Any, random: Any) -> dict[str, float]:
    """Return the values of the sentence about the digits: ASP against BSP, with constant times and with random ones."""
    more, part = constant.difference("ASP", "BSP"), random.ratio("ASP", "BSP")
    told = {"more": more.mean, "d_more": more.half, "time": constant.mean("BSP")}
    return {**told, "part": part.mean, "d_part": part.half}


def patients_say(best: Any) -> dict[str, float | str]:
    """Return the values of the sentence about the patients: without momentum, and each rule with its best one."""
    slower, more = best.ratio("BSP, no momentum", "ASP, no momentum"), best.difference("ASP", "BSP")
    bsp, asp = (best.ratio(name, f"{name}, no momentum") for name in ("BSP", "ASP"))
    momenta = {f"best_{name.lower()}": f"{best.config(name).optimizer.momentum:g}" for name in ("BSP", "ASP")}
    told = {"plain": slower.mean, "d_plain": slower.half, "bsp": bsp.mean, "d_bsp": bsp.half, "asp": asp.mean}
    return {**momenta, **told, "more": more.mean, "d_more": more.half, "time": best.mean("BSP")}
