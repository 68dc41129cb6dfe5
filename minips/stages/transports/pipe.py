"""Connects two processes of one machine by a Unix socket or, if the system has none, by a local port."""

import socket
import sys
from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path

from minips.stage import option, register
from minips.stages.transports.base import fresh_name
from minips.stages.transports.endpoints import PatientTransport, SocketListener
from minips.stages.transports.framing import Framer
from minips.stages.transports.network import loopback
from minips.stages.transports.sockets import SocketWire
from minips.stages.transports.wire import Listener, Wire


@dataclass(frozen=True)
class LocalTransport(PatientTransport):
    """Addresses are names on one machine: ``scheme://name``."""

    reach = "machine"
    max_message_bytes: int = option(2**31, "largest message accepted", minimum=2**10, unit="byte", operator=True)

    @abstractmethod
    def wire(self, sock: socket.socket) -> Wire:
        """Return the wire for a connected socket."""

    def listen(self, address: str | None) -> Listener[Wire]:
        address = address or f"{self.scheme}://{fresh_name()}"
        sock, place = self.make_socket(address)
        try:
            sock.bind(place)
            sock.listen(128)
        except OSError as error:
            sock.close()
            raise OSError(
                f"{address} cannot be served: {error.strerror or error}. Choose another name, or None for a fresh one."
            ) from None
        if isinstance(place, tuple):  # the port is known only now
            address = "{}://{}:{}".format(self.scheme, *sock.getsockname())
        return SocketListener(sock, address, self.wire)

    def dial(self, address: str, timeout: float) -> Wire:
        sock, place = self.make_socket(address)
        sock.settimeout(timeout)
        try:
            sock.connect(place)
        except OSError as error:
            sock.close()
            raise ConnectionError(f"No server listens at {address}: {error}. Is its server running here?") from None
        return self.wire(sock)

    def make_socket(self, address: str) -> tuple[socket.socket, str | tuple[str, int]]:
        """Return a socket, and its address in the operating system for this name. On Linux, no file stays on disk."""
        name = self.rest(address)
        if not hasattr(socket, "AF_UNIX"):
            host, _, port = name.rpartition(":")
            return socket.socket(), (host, int(port)) if port.isdigit() else (loopback(), 0)
        place = f"\0{name}"
        if sys.platform != "linux":
            import tempfile  # imported here, as it also imports the archives' compressors

            place = str(Path(tempfile.gettempdir()) / name)
        return socket.socket(socket.AF_UNIX), place


@register
@dataclass(frozen=True)
class Pipe(LocalTransport):
    """A Unix socket between processes of one machine: ``pipe://name``."""

    name = "pipe"
    scheme = "pipe"

    def wire(self, sock: socket.socket) -> Wire:
        if sock.family == socket.AF_INET:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return SocketWire(sock, Framer(self.max_message_bytes), self.stalled_s)
