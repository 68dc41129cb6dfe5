"""The packets that TCP sent again on the hosts of a run, by their kernels' counts."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from minips.engines.hosts import retransmissions


class Retransmissions:
    """``counts`` holds the packets of each run, as far as they were counted during it."""

    def __init__(self) -> None:
        self.counts: list[int] = []
        self._seen: dict[str, int] = {}

    @contextmanager
    def of_a_run(self) -> Iterator[None]:
        """Count during one run; the caller calls `look` from time to time."""
        self._seen.clear()
        yield
        self.counts.append(sum(self._seen.values()))

    def look(self, _: Any = None) -> None:
        """Count what the hosts have sent again so far."""
        self._seen |= retransmissions()
