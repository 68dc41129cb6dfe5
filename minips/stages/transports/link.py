"""Simulates a slow network on one machine: adds a link's bandwidth and latency to any transport.

If a link has B bytes per second and a latency of α seconds, a message of S bytes that starts at time t has left by
t + S/B and arrived by t + S/B + α. Each node has one full-duplex link to the network for all its peers. A message
first waits until the sender's earlier messages have left. At the receiver, it then waits for the messages whose first
byte left earlier. The network does not store messages: the first bytes arrive while later bytes leave. So if n workers
push S bytes each to one server, this takes nS/B + α.

The send call itself is not slowed. The sender notes when the message would have left, on the clock shared by all
processes of a machine, and the receiver holds the message back until it would have arrived.
"""

import struct
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass
from typing import ClassVar

from minips.stage import Frames, Value, option
from minips.stages.transports import base
from minips.stages.transports.base import Caller, Channel, Connection, Endpoint, Handler, Service, Transport, service_of
from minips.stages.transports.framing import size
from minips.stages.transports.streams import _Answer

_DEPARTURE = struct.Struct("<d")
_PLAUSIBLE_S = 3600.0
UNSHAPED = "The peer is not behind a link, and this side is."


@dataclass(frozen=True)
class Link(Value):
    """A node's connection to the network: bits per second each way, and a message's travel time in seconds.

    >>> Link(bandwidth_bps=100e6, latency_s=1e-3).seconds(1_250_000)
    0.101
    """

    bandwidth_bps: float = option(100e6, "bits per second, each way", above=0, unit="bit/s")
    latency_s: float = option(1e-3, "seconds that a message travels", minimum=0, unit="s")

    def seconds(self, nbytes: float) -> float:
        """Return the time, in seconds, that ``nbytes`` take over an idle link."""
        return nbytes * 8 / self.bandwidth_bps + self.latency_s

    def around(self, transport: Transport) -> Transport:
        """Return ``transport`` as one node sees it behind this link; all its endpoints and channels share the link."""
        return _Shaped(self, transport)


class _Direction:
    """One direction of one node's link. It remembers when its last transfer will end."""

    def __init__(self, bytes_per_s: float) -> None:
        self._bytes_per_s, self._free, self._lock = bytes_per_s, 0.0, threading.Lock()

    def take(self, earliest: float, nbytes: int) -> tuple[float, float]:
        """Return the start and end of a transfer of ``nbytes`` that may not start before ``earliest``."""
        with self._lock:
            start = max(self._free, earliest)
            end = start + nbytes / self._bytes_per_s
            if nbytes:  # an empty answer waits for earlier messages, but does not delay others
                self._free = end
            return start, end


class _Shaped(Transport):
    """A transport behind a link. `Link.around` makes it; it cannot be chosen by name."""

    name: ClassVar[str] = "shaped"

    def __init__(self, link: Link, transport: Transport) -> None:
        self.link, self.transport = link, transport
        self.scheme = transport.scheme  # type: ignore[misc]
        if hasattr(transport, "max_message_bytes"):
            self.max_message_bytes = transport.max_message_bytes
        self._out = _Direction(link.bandwidth_bps / 8)
        self._in = _Direction(link.bandwidth_bps / 8)

    def __repr__(self) -> str:
        return f"{self.link!r}.around({self.transport!r})"

    def depart(self, frames: Frames) -> Frames:
        """Prepend a frame that states when the first byte of the frames leaves."""
        start, _ = self._out.take(time.monotonic(), size(frames))
        return [_DEPARTURE.pack(start), *frames]

    def arrive(self, frames: Frames) -> Frames:
        """Return the frames that ``depart`` sent, once their last byte would have arrived."""
        if not frames or len(frames[0]) != _DEPARTURE.size:
            raise ValueError(f"{UNSHAPED} Give both the same config.")
        (start,) = _DEPARTURE.unpack(frames[0])
        ahead = start - time.monotonic()
        if not abs(ahead) < _PLAUSIBLE_S:
            raise ValueError(f"The peer says that its message left {ahead:g} seconds from now.")
        if ahead > 0:
            time.sleep(ahead)  # another sender's message may leave before this one
        _, end = self._in.take(start, size(frames[1:]))
        left = end + self.link.latency_s - time.monotonic()
        if left > 0:
            time.sleep(left)
        return frames[1:]

    def serve(self, handler: Handler | Service, address: str | None = None, token: str = "") -> Endpoint:
        service = service_of(handler)
        shaped = Service(lambda: _ShapedConnection(self, service.connection()))
        return self.transport.serve(shaped, address, token)

    def connect(self, address: str, token: str = "", timeout: float = 10.0) -> Channel:
        return _ShapedChannel(self, self.transport.connect(address, token, timeout))


class _ShapedConnection(Connection):
    def __init__(self, node: _Shaped, connection: Connection) -> None:
        self._node, self._connection = node, connection
        self.cancel, self.closed = connection.cancel, connection.closed  # type: ignore[method-assign]

    def begin(self, frames: Frames, reply: base.Reply) -> Frames:
        def depart(answer: Frames | Exception) -> base.Rest | None:
            return reply(answer if isinstance(answer, Exception) else self._node.depart(answer))

        answer = self._connection.begin(self._node.arrive(frames), depart)
        return answer if answer is base.DEFERRED else self._node.depart(answer)


class _ShapedChannel(Channel):
    def __init__(self, node: _Shaped, channel: Channel) -> None:
        self._node, self._channel = node, channel
        self.read, self.attend = channel.read, channel.attend  # type: ignore[method-assign]

    def close(self) -> None:
        self._channel.close()

    def call(self, frames: Frames) -> "Future[Frames]":
        answer = _Answer(self)
        self.ask(frames, answer)
        return answer

    def ask(self, frames: Frames, caller: Caller) -> None:
        self._channel.ask(self._node.depart(frames), _Arriving(self._node, caller))


class _Arriving:
    """A caller that receives an answer once its last byte would have arrived."""

    def __init__(self, node: _Shaped, caller: Caller) -> None:
        self._node, self._caller, self.failed = node, caller, caller.failed

    def arrived(self, frames: Frames) -> None:
        try:
            frames = self._node.arrive(frames)
        except Exception as error:
            self.failed(error)
        else:
            self._caller.arrived(frames)
