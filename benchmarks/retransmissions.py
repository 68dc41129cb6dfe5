"""The packets that TCP sent again on the hosts of a run, by their kernels' counts."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any


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
        """Read the count of each network namespace of this process's descendants: TcpRetransSegs, RFC 4022."""
        own = Path("/proc/self/ns/net").readlink()
        for process in _descendants("self"):
            with suppress(OSError, ValueError):  # it has just ended
                network = Path("/proc", process, "ns/net").readlink()
                if network != own:
                    rows = Path("/proc", process, "net/snmp").read_text().splitlines()
                    names, values = (row.split() for row in rows if row.startswith("Tcp:"))
                    self._seen[str(network)] = int(values[names.index("RetransSegs")])


def _descendants(process: str) -> Iterator[str]:
    with suppress(OSError):
        for task in Path("/proc", process, "task").iterdir():
            for child in (task / "children").read_text().split():
                yield child
                yield from _descendants(child)
