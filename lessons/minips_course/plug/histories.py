"""Histories of pushes: right ones, from schedules of faults, and ones with a planted bug."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minips_course.plug import drill

Event = tuple[str, int, int]
"""What happened to a push (``sent``, ``kept`` or ``acknowledged``), its worker and clock; or ``("killed", -1, -1)``."""
History = list[Event]


def right(seed: int) -> History:
    """Return the events of a schedule in which each push counts once."""
    return drill.run(drill.Once, seed).history


def kept_twice(history: History, rng: np.random.Generator) -> History:
    """A repeated push is kept again."""
    first = _one(history, "kept", rng)
    at = int(rng.integers(first + 1, len(history) + 1))
    return [*history[:at], history[first], *history[at:]]


def kept_late(history: History, rng: np.random.Generator) -> History:
    """A push is acknowledged, then kept."""
    first = history.index(("acknowledged", *history[_one(history, "acknowledged", rng)][1:]))
    kept = ("kept", *history[first][1:])
    rest = [event for event in history if event != kept]
    at = rest.index(history[first]) + int(rng.integers(1, 3))
    return [*rest[:at], kept, *rest[at:]]


def never_kept(history: History, rng: np.random.Generator) -> History:
    """A push is acknowledged, and never kept."""
    (_, worker, clock) = history[_one(history, "acknowledged", rng)]
    return [event for event in history if event != ("kept", worker, clock)]


def other_worker(history: History, rng: np.random.Generator) -> History:
    """A push is kept under another worker's name."""
    at = _one(history, "kept", rng)
    _, worker, clock = history[at]
    return [*history[:at], ("kept", worker + drill.WORKERS, clock), *history[at + 1 :]]


def other_clock(history: History, rng: np.random.Generator) -> History:
    """The acknowledgement of a push comes one clock too early."""
    firsts = [at for at, event in enumerate(history) if event[0] == "acknowledged" and event not in history[:at]]
    at = int(rng.choice([at for at in firsts if history[at][2] < drill.STEPS - 1]))
    what, worker, clock = history[at]
    return [*history[:at], (what, worker, clock + 1), *history[at + 1 :]]


def renamed(history: History, rng: np.random.Generator) -> History:
    """Return the same events of workers with other numbers, and of later clocks; some acknowledgements come again, at
    once or at the end.
    """
    ranks, first = rng.permutation(100), int(rng.integers(0, 50))
    found: History = []
    for what, worker, clock in history:
        event = (what, worker, clock) if worker < 0 else (what, int(ranks[worker]), clock + first)
        found += [event] * (1 + (what == "acknowledged" and rng.random() < 0.2))
    return found + [event for event in found if event[0] == "acknowledged" and rng.random() < 0.1]


def _one(history: History, what: str, rng: np.random.Generator) -> int:
    """Draw the place of an event of this kind."""
    return int(rng.choice([at for at, event in enumerate(history) if event[0] == what]))


BUGS: tuple[Callable[[History, np.random.Generator], History], ...] = (
    kept_twice,
    kept_late,
    never_kept,
    other_worker,
    other_clock,
)


def planted(seed: int) -> History:
    """Return a schedule's events with one bug in them."""
    rng = np.random.default_rng(seed)
    return BUGS[seed % len(BUGS)](right(seed), rng)


def told(invariant: Callable[[History], Any], seeds: Sequence[int] = range(50)) -> dict[str, int]:
    """Count the histories that an invariant calls broken: of those with a planted bug, and of the right ones."""
    found = sum(not invariant(planted(seed)) for seed in seeds)
    blamed = sum(not invariant(right(seed)) for seed in seeds)
    return {"found": found, "planted": len(seeds), "blamed": blamed, "right": len(seeds)}
