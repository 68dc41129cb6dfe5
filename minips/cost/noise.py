"""Noise in measurements: the processor time that other programs took meanwhile, and repeatability.

On Linux, /proc reports how long the cores worked, and for which process. On other systems, and for measurements shorter
than ``LEAST_S``, only the repeatability is known.
"""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from math import log
from pathlib import Path
from typing import NamedTuple, TypeVar

T = TypeVar("T")

BUSY, UNSTEADY = 0.2, 1.5
"""A machine is busy if other programs took more than this share of all cores; a measurement is unsteady if one half
took more than this many times as long as the other.
"""
LEAST_S = 0.2
"""The shortest measurement whose processor time is checked: the kernel counts in hundredths of a second."""


class Disturbance(NamedTuple):
    """The number of cores, how many of them other programs used, and the ratio of the second half to the first."""

    cores: int
    others: float = 0.0
    drift: float = 1.0

    @property
    def size(self) -> float:
        """The larger of load and drift, each divided by its threshold. Above 1, `note` is not empty."""
        return max(self.others / self.cores / BUSY, abs(log(self.drift)) / log(UNSTEADY))

    @property
    def note(self) -> str:
        """A sentence on the disturbance, with advice; empty if the machine was quiet."""
        if self.size <= 1:
            return ""
        if self.others > BUSY * self.cores:
            why = f"Other programs took {self.others:.1f} of {self.cores} cores while this was measured"
        else:
            factor = max(self.drift, 1 / self.drift)
            why = f"One half of the same measurements took {factor:.1f} times as long as the other"
        return f"{why}; the times may be off. Run it again on a quiet machine."


def measure_quietly(
    measure: Callable[[], T], attempts: int, drift: Callable[[T], float] = lambda result: 1.0
) -> tuple[T, str]:
    """Measure until the machine is quiet, at most ``attempts`` times. Returns the quietest result and its note.
    ``drift(result)`` returns the seconds of the result's second half divided by those of its first half.
    """
    found: list[tuple[Disturbance, T]] = []
    while len(found) < attempts and all(disturbance.note for disturbance, _ in found):
        meter = NoiseMeter()
        result = measure()
        found.append((meter.disturbance(drift(result)), result))
    disturbance, result = min(found, key=lambda attempt: attempt[0].size)
    return result, disturbance.note


class NoiseMeter:
    """Measures the cores' work since the meter was created."""

    def __init__(self) -> None:
        self._began, self._before = time.monotonic(), _processor_seconds()

    def disturbance(self, drift: float = 1.0) -> Disturbance:
        """Return the disturbance so far."""
        seconds, now, cores = time.monotonic() - self._began, _processor_seconds(), len(usable_cores())
        if not (self._before and now) or seconds < LEAST_S:
            return Disturbance(cores, drift=drift)
        total, own = (after - before for after, before in zip(now, self._before, strict=True))
        return Disturbance(cores, min(max(0.0, (total - own) / seconds), cores), drift)


def usable_cores() -> set[int]:
    """Return the indices of the cores that this process may use."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


def _processor_seconds() -> tuple[float, float] | None:
    """Return the seconds that the cores have worked in total, and for this process and its children. Children count
    once they have ended, as all measuring children have. None if the system does not report it.
    """
    with suppress(OSError, AttributeError, ValueError, IndexError):
        hertz, cores = os.sysconf("SC_CLK_TCK"), {f"cpu{core}" for core in usable_cores()}
        rows = [line.split() for line in Path("/proc/stat").read_text().splitlines()]
        # user, nice, system, and steal: the time of other machines on this hardware; interrupts belong to no program
        ticks = sum(int(row[column]) for row in rows if row[0] in cores for column in (1, 2, 3, 8))
        return ticks / hertz, sum(os.times()[:4])
    return None
