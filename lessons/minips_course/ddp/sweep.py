"""Hooks compared fairly: each at its own best learning rate, as `minips.lab.best_of` compares configs."""

from collections.abc import Mapping

import numpy as np

import minips as ps
from minips.lab import Best
from minips.lab.course.best import LEAST, Metric, Sweep


def best_of(found: Mapping[float, Mapping[str, list[list[float]]]]) -> Best:
    """Return each hook at its best learning rate. ``found`` maps at least five rates to what `ranks.learn` found.
    ValueError if there are fewer, or if a hook's best rate is the first or the last.
    """
    if len(found) < LEAST:
        raise ValueError(f"best_of takes at least {LEAST} different learning rates; got {[*found]}.")
    measured = Metric("accuracy", accuracy=None, loss=None, every=0)
    names = next(iter(found.values()))
    runs = {name: {rate: np.array(rows[name]) for rate, rows in found.items()} for name in names}
    best = Best({name: Sweep(ps.Config(workers=2), measured, by_rate) for name, by_rate in runs.items()})
    if best.unsettled:
        raise ValueError(f"These hooks need more learning rates: {', '.join(best.unsettled)}.")
    return best
