"""Addresses of host and port, for the transports over a network."""

import errno
import ipaddress
import socket
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, ClassVar

from minips.stages.transports.base import Transport
from minips.words import message_of

_ABSENT = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
LOOPBACKS = {"127.0.0.1": socket.AF_INET, "::1": socket.AF_INET6}


class NetworkTransport(Transport):
    """Addresses are ``scheme://host:port``: port 0 for a free one, loopback unless another host is named."""

    extra: ClassVar[str] = "transports"

    def bound(self, address: str | None) -> tuple[socket.socket, str]:
        """A socket that listens at the address, and which one it got. OSError in a sentence where it cannot be had."""
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
        except (OSError, UnicodeError) as error:  # the latter for a host that cannot be one
            raise self.unservable(host, port, error) from None

    def free(self, address: str | None) -> tuple[str, int]:
        """The host's number and the port at which a library may listen, 0 for any port. OSError as `bound`."""
        sock, _ = self.bound(address)
        with sock:
            return sock.getsockname()[0], self.host_and_port(address)[1]

    def dialled(self, address: str, timeout: float) -> socket.socket:
        """A socket connected to the address. ConnectionError where no server answers."""
        host, port = self.host_and_port(address)
        try:
            for number in _numbers(host):
                try:
                    return socket.create_connection((number, port), timeout)
                except OSError as error:
                    failed = error
            raise failed
        except (OSError, UnicodeError) as error:
            raise ConnectionError(f"No server answers at {address}: {error}. Is the server running?") from None

    def reached(self, address: str, timeout: float, names: Iterable[str] = ("localhost",)) -> tuple[str, int]:
        """Host and port for a library that connects; in place of one of these ``names`` the number at which a server
        listens. ConnectionError as `dialled`.
        """
        host, port = self.host_and_port(address)
        if host not in names:
            return host, port
        with self.dialled(address, timeout) as sock:
            return sock.getpeername()[0], port

    def host_and_port(self, address: str | None) -> tuple[str, int]:
        """``scheme://host:port`` taken apart; an IPv6 host stands in brackets. None: a free port of this machine."""
        host, separator, port = self.rest(f"{self.scheme}://:0" if address is None else address).rpartition(":")
        if not separator or not port.isdecimal() or int(port) > 65535:
            takes = f"{type(self).__name__} takes an address such as {self.scheme}://127.0.0.1:5000"
            raise ValueError(f"{takes}, got {address!r}.")
        return host.strip("[]") or loopback(), int(port)

    def address(self, host: str, port: int) -> str:
        """The two put together."""
        return f"{self.scheme}://{netloc(host, port)}"

    def plain(self, address: str | None, file: str, plaintext: bool) -> bool:
        if is_loopback(self.host_and_port(address)[0]) or vars(self).get(file):
            return False
        if not plaintext:
            raise ValueError(
                f"{address} is not of this machine alone, and there is no TLS: whoever is on the way could read and "
                "change what is sent. Use tcp with certificate and key where it is served, authority where it is "
                "connected to; or plaintext=True (--plaintext), if everybody on that network is trusted."
            )
        return True

    def unservable(self, host: str, port: int, error: Exception) -> OSError:
        """The sentence for an address that cannot be had."""
        advice = "Name an address that this machine has."
        if getattr(error, "errno", None) in (errno.EADDRINUSE, errno.EACCES):
            advice = "Choose another port, or 0 for a free one."
        why = (getattr(error, "strerror", None) or message_of(error)).partition(" (while")[0]  # of create_server
        return OSError(f"{self.address(host, port)} cannot be served: {why}. {advice}")


def netloc(host: str, port: int | str) -> str:
    """``host:port`` as libraries want it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def loopback() -> str:
    """This machine's own address for itself: 127.0.0.1, or ::1 where that is the only one."""
    for host, family in LOOPBACKS.items():
        with suppress(OSError), socket.socket(family) as sock:
            sock.bind((host, 0))
            return host
    return next(iter(LOOPBACKS))


def _numbers(host: str) -> list[str]:
    """The hosts to try for one: localhost is either loopback, whatever a file of hosts says."""
    return [*LOOPBACKS] if host == "localhost" else [host]


def _places(host: str, port: int) -> list[tuple[int, Any]]:
    """The families and addresses of a host, those of IPv4 first. OSError for an unknown name."""
    kind, flags = socket.SOCK_STREAM, socket.AI_PASSIVE
    found = [socket.getaddrinfo(number, port, type=kind, flags=flags) for number in _numbers(host)]
    return sorted(((family, place) for places in found for family, *_, place in places), key=lambda one: one[0])


def is_number(host: str) -> bool:
    """True for an address, which needs no look-up, False for a name."""
    with suppress(ValueError):
        return bool(ipaddress.ip_address(host))
    return False


def is_loopback(host: str) -> bool:
    """True for an address that this machine alone can reach. A name other than localhost is not looked up."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
