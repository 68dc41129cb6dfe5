"""TCP: blocking sockets that send by scatter-gather and receive directly into the arrays' final memory.

Messages travel as bodies, one after the other: see `minips.stages.transports.framing`.
"""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from minips.stage import Frames, option, register
from minips.stages.transports.auth import authenticate
from minips.stages.transports.base import Channel
from minips.stages.transports.endpoints import PatientTransport, SocketListener
from minips.stages.transports.framing import Framer
from minips.stages.transports.network import NetworkTransport
from minips.stages.transports.patience import STALLED_S
from minips.stages.transports.pools import MOST, Pools, pool_of
from minips.stages.transports.sockets import SocketWire
from minips.stages.transports.streams import StreamChannel
from minips.stages.transports.wire import Listener, Wire


@register
@dataclass(frozen=True)
class Tcp(NetworkTransport, PatientTransport):
    """TCP connections: ``tcp://host:port``, port 0 for a free one. Loopback unless another host is named.

    With a ``certificate`` and its ``key`` the server uses TLS. With an ``authority`` the client does too: it accepts a
    server only if its certificate is, or is signed by, that authority and names the host in the address.
    """

    name = "tcp"
    scheme = "tcp"
    max_message_bytes: int = option(2**31, "largest message accepted", minimum=2**10, unit="byte", operator=True)

    certificate: str = option("", "the server's TLS certificate, a PEM file; empty: no TLS", operator=True)
    key: str = option("", "the key of that certificate, a PEM file", operator=True)
    authority: str = option("", "whose certificates the client accepts, a PEM file; empty: no TLS", operator=True)

    pool: int = option(2, "connections of a channel, which share large messages", minimum=1, maximum=MOST, step=1)

    def listen(self, address: str | None) -> Listener[Wire]:
        guard, pools, (sock, place) = self._guard(), Pools(), self.bind(address)

        def wire(peer: socket.socket) -> Wire:
            return self._wire(guard(_unpaced(peer)), pools)

        return SocketListener(sock, place, wire)

    def connect(self, address: str, token: str = "", timeout: float = 10.0) -> Channel:
        wires: list[_TcpWire] = []
        try:
            for _ in range(self.pool):
                wires.append(authenticate(self.dial(address, timeout), token, address, timeout))
            return StreamChannel(pool_of(wires), address)
        except BaseException:
            for wire in wires:
                wire.close()
            raise

    def dial(self, address: str, timeout: float) -> "_TcpWire":
        sock = _unpaced(self.open_socket(address, timeout))
        if not self.authority:
            return self._wire(sock)
        import ssl

        from minips.stages.transports.tls import TlsSocket

        try:
            with _pem(authority=self.authority):
                context = ssl.create_default_context(cafile=self.authority)
            guarded = TlsSocket(sock, context, self.stalled_s, self.host_and_port(address)[0])
            guarded.shake_hands()
        except BaseException:
            sock.close()
            raise
        return self._wire(guarded)

    def _wire(self, sock: Any, pools: Pools | None = None) -> "_TcpWire":
        return _TcpWire(sock, self.max_message_bytes, self.stalled_s, pools)

    def _guard(self) -> Callable[[socket.socket], Any]:
        """Return the function that a server applies to each accepted socket."""
        if not self.certificate:
            return lambda sock: sock
        import ssl  # imported only when it is used

        from minips.stages.transports.tls import TlsSocket

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with _pem(certificate=self.certificate, key=self.key):
            context.load_cert_chain(self.certificate, self.key or None)
        return lambda sock: TlsSocket(sock, context, self.stalled_s)


@contextmanager
def _pem(**files: str) -> Iterator[None]:
    """Let the block read these fields' files. If a file cannot be used, a ValueError names the field and the file."""
    named = {f"Tcp.{field}": path for field, path in files.items() if path}
    for field, path in named.items():
        try:
            open(path, "rb").close()
        except OSError as error:
            raise ValueError(f"{field} names {path!r}, which cannot be read: {error.strerror}.") from None
    try:
        yield
    except OSError as error:  # SSLError is one
        pair = " with ".join(f"{field}={path!r}" for field, path in named.items())
        raise ValueError(f"{pair} cannot be used; PEM files that belong together are expected: {error}.") from None


def _unpaced(sock: socket.socket) -> socket.socket:
    """Return the socket; on the loopback, choose a congestion control that does not pace. BBR, possibly the system's
    default, spreads a message over a time measured on small messages, but the loopback has no congestion.
    """
    with suppress(OSError):
        if hasattr(socket, "TCP_CONGESTION") and sock.getpeername()[0] in ("127.0.0.1", "::1"):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
    return sock


class _TcpWire(SocketWire):
    def __init__(
        self, sock: Any, max_message_bytes: int, stalled_s: float = STALLED_S, pools: Pools | None = None
    ) -> None:
        super().__init__(sock, Framer(max_message_bytes), stalled_s)
        self._pools = pools
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def join(self, frames: Frames) -> Wire | None:
        return self._pools.join(self, frames) if self._pools else super().join(frames)
