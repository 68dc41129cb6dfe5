"""gRPC: one stream of messages in each direction over HTTP/2, with bytes as messages and no .proto.

The library's C++ threads do HTTP/2 framing and flow control, with many streams over one connection. The library pings
a peer, and reports if it has gone. It normally uses a .proto and protobuf but does not need them: a generic
handler without conversion functions passes bytes through. A channel is one call of the method Talk, whose
requests and responses are both streams. A stream keeps the messages' order, and ends when either side does.

On the wire, a message is one body (see `framing`) in HTTP/2 frames of 16 kB. gRPC accepts and returns a message as one
`bytes`: it is joined (a copy), copied into gRPC's slices and out of them, and once more into writable memory. gRPC
refuses messages above 4 MB by default. Here the transport sets the limit, at most 2 GiB minus one byte, which holds for
strangers too. A peer that stalls does not answer pings, and is dropped after 60 s.
"""

import errno
import os
import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Any

from minips.stage import option, register
from minips.stages.transports.base import HANDSHAKE_S
from minips.stages.transports.calls import Body, CallTransport, CallWire, RemoteCaller, RemoteServer
from minips.stages.transports.framing import TooLargeError, writable
from minips.stages.transports.inbox import InboxListener
from minips.stages.transports.network import netloc
from minips.stages.transports.wire import Listener, Wire

_METHOD = "/minips/Talk"
_PING_MS = 30_000


@register
@dataclass(frozen=True)
class Grpc(CallTransport):
    """gRPC without a .proto, a bidirectional stream for each channel: ``grpc://host:port``."""

    name = "grpc"
    scheme = "grpc"
    requires, extra = ("grpc",), "grpc"
    max_message_bytes: int = option(
        2**31 - 1, "largest message accepted", minimum=2**10, maximum=2**31 - 1, unit="byte", operator=True
    )

    def listen(self, address: str | None) -> Listener[RemoteCaller]:
        return _GrpcListener(self, address)

    def dial(self, address: str, timeout: float) -> Wire:
        return CallWire(_GrpcServer(netloc(*self.resolve(address, timeout)), self.options()), address)

    def options(self) -> list[tuple[str, int]]:
        """Return gRPC's channel arguments, for both sides."""
        return [
            ("grpc.max_receive_message_length", self.max_message_bytes),
            ("grpc.max_send_message_length", -1),  # the receiver sets the limit
            ("grpc.keepalive_time_ms", _PING_MS),
            ("grpc.http2.max_pings_without_data", 0),
            ("grpc.http2.min_ping_interval_without_data_ms", _PING_MS // 2),
            ("grpc.so_reuseport", 0),  # two servers at one port would divide its clients between them
            ("grpc.enable_http_proxy", 0),
        ]


class _GrpcServer(RemoteServer):
    def __init__(self, target: str, options: list[tuple[str, int]]) -> None:
        import grpc

        self._requests: queue.SimpleQueue[Body | None] = queue.SimpleQueue()
        self._channel = grpc.insecure_channel(target, [*options, ("grpc.use_local_subchannel_pool", 1)])
        # Each body is joined only when its turn comes, so that a waiting body is not held twice.
        self._answers = self._channel.stream_stream(_METHOD)(map(b"".join, iter(self._requests.get, None)))

    def begin(self, body: Body) -> Callable[[], memoryview]:
        self._requests.put(body)
        return self._next

    def _next(self) -> memoryview:
        try:
            return writable(next(self._answers))
        except Exception as error:  # the end of the stream, or gRPC's RpcError
            words = getattr(error, "details", str)() or "it has ended"
            if "larger than max" in words:
                raise TooLargeError(f"A message is too large for gRPC: {words}.") from None
            raise ConnectionError(words) from None

    def shutdown(self) -> None:
        self._requests.put(None)
        self._answers.cancel()

    def close(self) -> None:
        self.shutdown()
        self._channel.close()


class _GrpcCaller(RemoteCaller):
    def __init__(self, requests: Iterator[bytes]) -> None:
        super().__init__()
        self._requests = requests
        self.answers: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        """The bodies that gRPC should send, then None at the end."""

    def serve(self) -> None:
        for body in map(writable, self._requests):
            self.answers.put(b"".join(self.answer(body)))
            del body  # frees it before the next one arrives

    def shutdown(self) -> None:
        self.answers.put(None)  # queued after the waiting answers, so that a refused client learns why

    close = shutdown


class _GrpcListener(InboxListener[RemoteCaller]):
    def __init__(self, transport: Grpc, address: str | None) -> None:
        import grpc

        method = grpc.stream_stream_rpc_method_handler(self._talk)
        talk = grpc.method_handlers_generic_handler("minips", {"Talk": method})
        self._server = grpc.server(_ThreadEach(), [talk], options=transport.options())
        try:
            host, port = transport.free_port(address)  # otherwise gRPC would log its own message about a port in use
            bound = self._server.add_insecure_port(netloc(host, port))
        except RuntimeError:  # another program has taken the port meanwhile
            self._server.stop(None).wait(HANDSHAKE_S)
            taken = OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
            raise transport.unservable(host, port, taken) from None
        except OSError:
            self._server.stop(None).wait(HANDSHAKE_S)
            raise
        super().__init__(transport.address(host, bound))
        self._server.start()

    def _talk(self, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        caller = _GrpcCaller(requests)
        self.incoming.put(caller)
        return iter(caller.answers.get, None)

    def close(self) -> None:
        self._server.stop(None).wait(HANDSHAKE_S)


class _ThreadEach(Executor):
    """A thread for each stream: in a pool of fixed size, the next client would wait until another client leaves."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        run = threading.Thread(target=lambda: future.set_result(fn(*args, **kwargs)), name="minips-grpc", daemon=True)
        run.start()
        return future
