"""A prediction's links: first come, first served, each way by itself."""

from minips.drivers.clockwork import Clockwork
from minips.stages.transports import Link


class Port:
    """A machine's end of its link, which all of its processes share: when it is free again each way.

    The link does what `minips.stages.transports.link` does, ``late`` seconds later where a message had to wait for it.
    What processes with the same port say to each other does not pass it.
    """

    def __init__(self, clockwork: Clockwork, link: Link | None, late: float = 0.0) -> None:
        self._clockwork, self._link, self._late = clockwork, link, late
        self._outgoing = self._incoming = 0.0

    def left(self) -> list[float]:
        """Seconds until the link is free each way."""
        now = self._clockwork.now
        return [max(0.0, self._outgoing - now), max(0.0, self._incoming - now)]

    def depart(self, nbytes: float, to: "Port") -> float:
        """When the first byte of a message leaves that is sent now."""
        if not self._link or to is self:
            return self._clockwork.now
        start = self._clockwork.later(self._outgoing, self._clockwork.now)
        if nbytes:
            self._outgoing = start + nbytes * 8 / self._link.bandwidth_bps
        return start

    def arrive(self, start: float, nbytes: float, source: "Port") -> float:
        """Seconds from now until the last byte is here of a message that left from ``start`` on."""
        if not self._link or source is self:
            return 0.0
        end = self._clockwork.later(self._incoming, start) + nbytes * 8 / self._link.bandwidth_bps
        if nbytes:
            self._incoming = end
        left = end + self._link.latency_s - self._clockwork.now
        return left + self._late if left > 0 else 0.0
