"""Host-and-port addresses for transports over a network."""

import errno
import ipaddress
import os
import socket
import struct
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, ClassVar

from minips.stages.transports.base import Transport
from minips.words import message_of

_ABSENT = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
LOOPBACKS = {"127.0.0.1": socket.AF_INET, "::1": socket.AF_INET6}


class NetworkTransport(Transport):
    """Addresses are ``scheme://host:port``; port 0 means any free port. The default host is the loopback."""

    extra: ClassVar[str] = "transports"

    def bind(self, address: str | None) -> tuple[socket.socket, str]:
        """Return a socket that listens at the address, and its address. OSError, with a sentence, if that fails."""
        host, port = self.host_and_port(address)
        try:
            for family, place in _places(host, port):
                try:
                    sock = socket.create_server(place, family=family, backlog=128)
                    return sock, self.address(*sock.getsockname()[:2])
                except OSError as error:
                    if error.errno not in _ABSENT:
                        raise
                    failed = error
            raise failed
        except (OSError, UnicodeError) as error:  # UnicodeError for an impossible host name
            raise self.unservable(host, port, error) from None

    def free_port(self, address: str | None) -> tuple[str, int]:
        """Return a host's numeric address and the port for a library to listen at (0: any). OSError as for `bind`."""
        sock, _ = self.bind(address)
        with sock:
            return sock.getsockname()[0], self.host_and_port(address)[1]

    def open_socket(self, address: str, timeout: float) -> socket.socket:
        """Return a socket connected to the address. ConnectionError if no server answers."""
        host, port = self.host_and_port(address)
        try:
            for number in _numbers(host):
                try:
                    return _connected((number, port), timeout)
                except OSError as error:
                    failed = error
            raise failed
        except (OSError, UnicodeError) as error:
            raise ConnectionError(f"No server answers at {address}: {error}. Is the server running?") from None

    def resolve(self, address: str, timeout: float, names: Iterable[str] = ("localhost",)) -> tuple[str, int]:
        """Return host and port for a library that connects, after a first connection to them: where nobody listens, a
        library's socket might be connected to itself. A host in ``names`` is replaced by the numeric address at which
        the server listens. ConnectionError as for `open_socket`.
        """
        host, port = self.host_and_port(address)
        with self.open_socket(address, timeout) as sock:
            return sock.getpeername()[0] if host in names else host, port

    def host_and_port(self, address: str | None) -> tuple[str, int]:
        """Return host and port of ``scheme://host:port``; an IPv6 host has brackets. None means a free port here."""
        host, separator, port = self.rest(f"{self.scheme}://:0" if address is None else address).rpartition(":")
        if not separator or not port.isdecimal() or int(port) > 65535:
            takes = f"{type(self).__name__} takes an address such as {self.scheme}://127.0.0.1:5000"
            raise ValueError(f"{takes}, got {address!r}.")
        return host.strip("[]") or loopback(), int(port)

    def address(self, host: str, port: int) -> str:
        """Return the address of a host and a port."""
        return f"{self.scheme}://{netloc(host, port)}"

    def plain(self, address: str | None, file: str, plaintext: bool) -> bool:
        if is_loopback(self.host_and_port(address)[0]) or vars(self).get(file):
            return False
        if not plaintext:
            raise ValueError(
                f"Other machines can reach {address}, and there is no TLS: anyone on the way could read and change the "
                "messages. Use tcp with certificate and key at the server, and authority at the clients; or "
                "plaintext=True (--plaintext), if you trust everyone on that network."
            )
        return True

    def unservable(self, host: str, port: int, error: Exception) -> OSError:
        """Return the error for an address that cannot be used."""
        advice = "Name an address that this machine has."
        if getattr(error, "errno", None) in (errno.EADDRINUSE, errno.EACCES):
            advice = "Choose another port, or 0 for a free one."
        why = (getattr(error, "strerror", None) or message_of(error)).partition(" (while")[0]  # by create_server
        return OSError(f"{self.address(host, port)} cannot be served: {why}. {advice}")


def _connected(place: tuple[str, int], timeout: float) -> socket.socket:
    """Return a socket connected to this place. OSError if that fails, and if the system has connected it to itself, as
    it can where nobody listens at a port that it also gives to clients.
    """
    sock = socket.create_connection(place, timeout)
    if sock.getsockname() == sock.getpeername():
        # A reset, so that a server can listen at this port at once.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.close()
        raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
    return sock


def netloc(host: str, port: int | str) -> str:
    """Return ``host:port`` in the form that libraries accept."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def loopback() -> str:
    """Return this machine's address for itself: 127.0.0.1, or ::1 if that is the only one."""
    for host, family in LOOPBACKS.items():
        with suppress(OSError), socket.socket(family) as sock:
            sock.bind((host, 0))
            return host
    return next(iter(LOOPBACKS))


def _numbers(host: str) -> list[Any]:
    """Return the numeric addresses to try for a host. For localhost these are both loopbacks, whatever the hosts file
    says. They are bytes: looking up text would import a codec for names, which takes longer than connecting.
    """
    numbers = [*LOOPBACKS] if host == "localhost" else [host]
    return [number.encode() if is_number(number) else number for number in numbers]


def _places(host: str, port: int) -> list[tuple[int, Any]]:
    """Return the families and addresses of a host, IPv4 first. OSError for an unknown name."""
    kind, flags = socket.SOCK_STREAM, socket.AI_PASSIVE
    found = [socket.getaddrinfo(number, port, type=kind, flags=flags) for number in _numbers(host)]
    return sorted(((family, place) for places in found for family, *_, place in places), key=lambda one: one[0])


def is_number(host: str) -> bool:
    """Return True for a numeric address, which need not be looked up, and False for a name."""
    with suppress(ValueError):
        return bool(ipaddress.ip_address(host))
    return False


def is_loopback(host: str) -> bool:
    """Return True for an address that only this machine can reach, such as localhost. Does not look up names."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
