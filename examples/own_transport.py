"""A transport of your own, TCP on this machine: ``minips --load own_transport.py train --transport loopback``."""

import socket
from dataclasses import dataclass

import minips as ps


@ps.register
@dataclass(frozen=True)
class Loopback(ps.transports.PatientTransport):
    """A port of this machine, ``loopback://port``. A transport needs only a way to listen, a way to dial and a wire."""

    name = scheme = "loopback"
    reach = "machine"

    def listen(self, address: str | None) -> ps.transports.Listener[ps.transports.Wire]:
        address = address or "loopback://0"
        try:
            sock = socket.create_server(("127.0.0.1", int(self.rest(address))))
        except OSError as error:
            raise OSError(f"{address} cannot be served: {error}. Choose another port, or 0 for a free one.") from None
        return ps.transports.SocketListener(sock, f"loopback://{sock.getsockname()[1]}", self.wire)

    def dial(self, address: str, timeout: float) -> ps.transports.Wire:
        try:
            return self.wire(socket.create_connection(("127.0.0.1", int(self.rest(address))), timeout))
        except OSError as error:
            raise ConnectionError(f"No server listens at {address}: {error}. Is it running here?") from None

    def wire(self, sock: socket.socket) -> ps.transports.Wire:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return ps.transports.SocketWire(sock, ps.transports.Framer(2**31), self.stalled_s)


if __name__ == "__main__":
    ps.testing.check(Loopback())  # tokens, errors, large and many messages, peers that go away
    print(ps.train(ps.SoftmaxRegression(*ps.datasets.digits()), ps.Config(transport=Loopback())).summary())
