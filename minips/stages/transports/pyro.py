"""Pyro: remote objects. The client holds a proxy, and calls to the proxy are carried out by the server's object.

The library (Pyro5) provides proxies, messages whose head has a checksum, a choice of serializers, a daemon that finds
the object and calls its method, and errors that are raised again at the caller. Its own servers use a pool of 80
threads. Here each connection has its own daemon and thread, since a parameter server's calls wait for each other. Pyro
is known as slow because its usual serializer, serpent, writes bytes as base64 text. In msgpack, bytes stay bytes.

On the wire: Pyro's head, then the object, the method and the body (see `framing`) in msgpack. A message is joined (a
copy), packed into msgpack and joined with the head; it is then unpacked, and copied into writable memory. Only one call
at a time is on the wire; see `blocking`. By default Pyro reads a message with the serializer that its sender names, and
marshal, one of those, crashes the interpreter on 15 hostile bytes. So both sides check the head of each message before
they read the rest: anything but a plain call in msgpack, or its answer, ends the connection. A peer that knows the
token may stall within a message for as long as the system keeps its connection: Pyro has no time-out for that.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from minips.stage import register
from minips.stages.transports.blocking import BlockingTransport, Metered

_OBJECT = "minips"


@cache
def _msgpack_only() -> Any:
    """Return the class of a connection that accepts only plain messages in msgpack."""
    from Pyro5 import errors, protocol, serializers, socketutil

    msgpack = serializers.serializers["msgpack"].serializer_id
    plain = protocol.FLAGS_EXCEPTION | protocol.FLAGS_CORR_ID  # no zlib, marshal, batches, streams or threads
    nbytes = struct.calcsize(protocol._header_format)

    class MsgpackOnly(socketutil.SocketConnection):  # type: ignore[misc, unused-ignore]
        _head = b""

        def recv(self, size: int) -> bytes:
            """Pyro asks for the head in two parts, and for the rest in one."""
            data: bytes = super().recv(size)
            if len(self._head) == nbytes:
                self._head = b""
                return data
            self._head += data
            if len(self._head) == nbytes:
                head = protocol.ReceivingMessage(self._head)
                if head.serializer_id != msgpack or head.flags & ~plain:
                    raise errors.SecurityError("the peer sends something other than plain messages in msgpack")
            return data

    return MsgpackOnly


@register
@dataclass(frozen=True)
class Pyro(BlockingTransport):
    """Pyro5 with msgpack, a proxy for each channel: ``pyro://host:port``."""

    name = "pyro"
    scheme = "pyro"
    requires = ("Pyro5", "msgpack")

    def load(self) -> None:
        import Pyro5.api  # noqa: F401

        _msgpack_only()

    def client(self, sock: Metered) -> Callable[[bytes], bytes]:
        from Pyro5.api import Proxy

        class MsgpackProxy(Proxy):  # type: ignore[misc, unused-ignore]
            def _pyroGetMetadata(self, *told: Any, **known: Any) -> None:  # noqa: N802
                self._pyroSerializer = "msgpack"  # starting with its first message
                self._pyroConnection: Any = _msgpack_only()(self._pyroConnection.sock, _OBJECT, keep_open=True)
                super()._pyroGetMetadata(*told, **known)

        proxy = MsgpackProxy(_OBJECT, connected_socket=sock)

        def ask(body: bytes) -> bytes:
            proxy._pyroClaimOwnership()
            answer: bytes = proxy.ask(body)
            return answer

        return ask

    def read(self, sock: Metered, answer: Callable[[bytes], bytes]) -> None:
        from Pyro5.api import Daemon, expose

        class Remote:
            @expose  # type: ignore[untyped-decorator, unused-ignore]
            def ask(self, body: bytes) -> bytes:
                return answer(body)

        with Daemon(connected_socket=sock) as daemon:
            daemon.transportServer.conn.keep_open = True  # otherwise it would close the socket when it is replaced
            daemon.transportServer.conn = _msgpack_only()(sock, keep_open=True)
            daemon.register(Remote(), _OBJECT)
            while daemon.transportServer.handleRequest():
                pass
