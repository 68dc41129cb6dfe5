"""Turns and spreads: contenders take turns, and the ratios of their times are computed for each round."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, Self

import numpy as np

START_S, TURN_S = 120.0, 600.0
"""The most seconds for the start of a process, and for a turn."""
BUDGET_S, LEAST_TURNS = 5.0, 3
"""A contender whose turns would take more than ``BUDGET_S`` seconds in total takes part in fewer rounds, but in at
least ``LEAST_TURNS``."""

Watch = Callable[[str, float], None]
"""A function called with a text on the current work, and the share of the work that is done."""
Turn = Callable[[], float]
"""Makes one call and returns its seconds. Between two calls the others have turns, as a worker computes gradients."""


class Spread(NamedTuple):
    """The median and the quartiles of some figures."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, figures: Iterable[float]) -> Self:
        """Return the spread of one figure or more."""
        low, median, high = np.quantile(list(figures), [0.25, 0.5, 0.75]).tolist()
        return cls(median, low, high)


def rota(turns: Mapping[str, int], rounds: int, watch: Watch = lambda text, share: None) -> Iterator[tuple[int, str]]:
    """Yield the round and the contender of each turn. Each contender's ``turns`` are spread evenly over the rounds; a
    fixed seed draws a new order for each round. ``watch`` is called with the next contender.

    >>> [number for number, name in rota({"always": 4, "now and then": 2}, 4) if name == "now and then"]
    [0, 2]
    """
    rng = np.random.default_rng(0)
    present = {name: {i * rounds // count for i in range(count)} for name, count in turns.items()}
    done, planned = 0, sum(map(len, present.values()))
    for number in range(rounds):
        names = [name for name in turns if number in present[name]]
        for name in rng.permutation(names).tolist():
            watch(name, done / planned)
            done += 1
            yield number, name


def take_turns(
    turns: Mapping[str, Turn], first_s: Mapping[str, float], rounds: int, watch: Watch
) -> dict[str, dict[int, float]]:
    """Return the seconds of one call by contender and round, for at most ``rounds`` rounds.

    ``first_s`` contains the seconds of first calls. These are not measured, nor is a quick contender's second call.
    """
    wanted = dict[str, int]()
    for name, turn in turns.items():
        call_s = first_s[name] if first_s[name] > 1 else min(first_s[name], turn())
        wanted[name] = min(max(int(BUDGET_S / call_s), LEAST_TURNS), rounds)
    seconds: dict[str, dict[int, float]] = {name: {} for name in turns}
    for number, name in rota(wanted, rounds, watch):
        seconds[name][number] = turns[name]()
    return seconds


def over(figures: Mapping[str, Mapping[int, float]], name: str, reference: str) -> Spread | None:
    """Return the spread, over common rounds, of the ratios to the reference's figures; None if it has no figures."""
    theirs = figures.get(reference)
    if theirs is None:
        return None
    return Spread.of([figure / theirs[number] for number, figure in figures[name].items() if number in theirs])
