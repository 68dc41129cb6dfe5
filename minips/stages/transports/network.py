"""Addresses of host and port, for the transports over a network."""

import ipaddress
import socket
from typing import ClassVar

from minips.stages.transports.base import Transport


class NetworkTransport(Transport):
    """Addresses are ``scheme://host:port``: port 0 for a free one, loopback unless another host is named."""

    extra: ClassVar[str] = "transports"

    def bound(self, address: str | None) -> tuple[socket.socket, str]:
        """A socket that listens at the address, and which one it got. OSError in a sentence where it cannot be had."""
        host, port = self.host_and_port(address)
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            sock = socket.create_server((host, port), family=family, backlog=128)
        except OSError as error:
            raise self.unservable(address, error.strerror) from None
        return sock, self.address(*sock.getsockname()[:2])

    def dialled(self, address: str, timeout: float) -> socket.socket:
        """A socket connected to the address. ConnectionError where no server answers."""
        try:
            return socket.create_connection(self.host_and_port(address), timeout)
        except (OSError, UnicodeError) as error:  # the latter for a host that cannot be one
            raise ConnectionError(f"No server answers at {address}: {error}. Is the server running?") from None

    def host_and_port(self, address: str | None) -> tuple[str, int]:
        """``scheme://host:port`` taken apart; an IPv6 host stands in brackets. None: a free port of this machine."""
        host, separator, port = self.rest(f"{self.scheme}://:0" if address is None else address).rpartition(":")
        if not separator or not port.isdecimal() or int(port) > 65535:
            takes = f"{type(self).__name__} takes an address such as {self.scheme}://127.0.0.1:5000"
            raise ValueError(f"{takes}, got {address!r}.")
        return host.strip("[]") or "127.0.0.1", int(port)

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

    def unservable(self, address: str | None, error: object) -> OSError:
        """The sentence for an address that cannot be had."""
        return OSError(f"{address} cannot be served: {error}. Choose another port, or 0 for a free one.")


def netloc(host: str, port: int | str) -> str:
    """``host:port`` as libraries want it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """True for an address that this machine alone can reach. A name other than localhost is not looked up."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
