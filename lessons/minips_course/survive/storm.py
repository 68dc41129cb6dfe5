"""A storm of retries: many callers that lost their server, and call it all at once when it is back."""

from collections.abc import Callable, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any, NamedTuple

import numpy as np

from minips.lab.course.intervals import interval
from minips.stage import Array

WORK, PATIENCE, END = 1, 50, 10_000
"""Milliseconds: of a call at the server, of a caller that waits for its answer, and of all."""
Wait = Callable[[int, np.random.Generator], float]
"""The milliseconds that a caller waits before a retry, from the number of retries before and a generator."""


class Storm(NamedTuple):
    """What came of it."""

    answered: Array
    """When each caller has its answer, in ms; infinity if it has none."""
    useful: Array
    """When the server began each call that was answered in time, in ms."""
    wasted: Array
    """When it began each call that it worked on for nobody."""

    @property
    def came(self) -> Array:
        """The times of the answers that came."""
        return self.answered[np.isfinite(self.answered)]


def storm(
    wait: Wait, callers: int = 200, seed: int = 0, told: bool = False, drop: float = 0, retries: int = 10_000
) -> Storm:
    """A server handles calls one by one. A caller without an answer gives up and calls again. If the server is
    ``told`` the deadlines, it drops calls that nobody waits for, in ``drop`` milliseconds each.
    """
    rng, free, useful, wasted = np.random.default_rng(seed), 0.0, [], []
    answered, coming = np.full(callers, np.inf), [(0.0, caller, 0) for caller in range(callers)]
    while coming and coming[0][0] < END:
        now, caller, attempt = heappop(coming)
        begin, gives_up = max(now, free), now + PATIENCE
        dropped = told and begin >= gives_up
        free = begin + (drop if dropped else WORK)
        if begin + WORK <= gives_up:
            answered[caller] = begin + WORK
            useful.append(begin)
            continue
        if begin < END and not dropped:
            wasted.append(begin)
        if attempt < retries:
            heappush(coming, (gives_up + wait(attempt, rng), caller, attempt + 1))
    return Storm(answered, np.array(useful), np.array(wasted))


def at_once(attempt: int, rng: np.random.Generator) -> float:
    """Wait for nothing."""
    return 0.0


def doubled(base: float) -> Wait:
    """Wait for ``base`` ms before the first retry, and twice as long before each further one."""
    return lambda attempt, rng: base * 2.0**attempt


def drawn(base: float) -> Wait:
    """Wait for a random time below the bound that `doubled` waits for."""
    return lambda attempt, rng: rng.uniform(0, base * 2.0**attempt)


SERVERS: dict[str, dict[str, Any]] = {
    "not known": {},
    "known": {"told": True},
    "known, a drop costs half a call": {"told": True, "drop": WORK / 2},
}
"""Maps what the server knows of deadlines to arguments of `storm`."""


def table(waits: Mapping[str, Wait], callers: Sequence[int] = (100, 200, 400), after: float = 2_000) -> str:
    """Return how many of so many callers have their answer after so many ms: mean and 95 % interval of five seeds."""
    lines = [f"{'deadlines, waits':42}" + "".join(f" | {f'of {many} callers':>14}" for many in callers)]
    for server, known in SERVERS.items():
        for name, wait in waits.items():
            found = [
                interval([float((storm(wait, many, seed, **known).answered <= after).sum()) for seed in range(5)])
                for many in callers
            ]
            lines.append(f"{f'{server}: {name}':42}" + "".join(f" | {_told(*one):>14}" for one in found))
    return "\n".join(lines)


def _told(mean: float, half: float) -> str:
    return f"{mean:.0f} ± {half:.0f}" if half else f"{mean:.0f}"
