"""gRPC: one stream of messages each way over HTTP/2, with bytes for messages and no .proto.

What the library does: HTTP/2 framing and flow control, many streams over one connection, its own threads in C++, the
news that a peer has gone, and pings that find out. A .proto and protobuf are its habit, not its need: a generic
handler takes functions from bytes to bytes, here none at all. A channel is one call of the method Talk, whose requests
and responses are both streams: that keeps their order, and a stream ends when either side does.

On the wire: a message is one body (see `network`) in HTTP/2 frames of 16 kB. gRPC takes and gives a message as one
`bytes`: it is joined (a copy), copied into gRPC's slices and out of them, and once more into memory that can be written
to. gRPC refuses messages above 4 MB unless told otherwise; here it is told the transport's own limit, which at most is
2 GiB less a byte. It holds for strangers too.
"""

import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Any

from minips.stage import Buffer, Frames, option, register
from minips.stages.transports.base import HANDSHAKE_S
from minips.stages.transports.framing import pieces, split, writable
from minips.stages.transports.network import NetworkTransport, netloc
from minips.stages.transports.wire import Listener, Wire

_METHOD = "/minips/Talk"
_PING_MS = 30_000


@register
@dataclass(frozen=True)
class Grpc(NetworkTransport):
    """gRPC without a .proto, a bidirectional stream for each channel: ``grpc://host:port``."""

    name = "grpc"
    scheme = "grpc"
    requires = ("grpc",)
    max_message_bytes: int = option(
        2**31 - 1, "largest message that is taken", minimum=2**10, maximum=2**31 - 1, unit="byte", operator=True
    )

    def listen(self, address: str | None) -> Listener:
        return _GrpcListener(self, address)

    def dial(self, address: str, timeout: float) -> Wire:
        import grpc

        target = netloc(*self.host_and_port(address))
        channel = grpc.insecure_channel(target, [*self.options(), ("grpc.use_local_subchannel_pool", 1)])
        wire = _GrpcWire(self.max_message_bytes, hears_the_end=False)
        call = channel.stream_stream(_METHOD)(wire.outgoing())
        wire.attach(call, call.cancel, channel.close)
        return wire

    def options(self) -> list[tuple[str, int]]:
        """GRPC's channel arguments, for both sides."""
        return [
            ("grpc.max_receive_message_length", self.max_message_bytes),
            ("grpc.max_send_message_length", -1),  # the receiver says what is too much
            ("grpc.keepalive_time_ms", _PING_MS),
            ("grpc.http2.max_pings_without_data", 0),
            ("grpc.http2.min_ping_interval_without_data_ms", _PING_MS // 2),
            ("grpc.so_reuseport", 0),  # two servers of one port would share its clients between them
            ("grpc.enable_http_proxy", 0),
        ]


class _GrpcWire(Wire):
    """Either end of a stream: gRPC takes bodies from one iterator and gives them by another."""

    def __init__(self, max_message_bytes: int, hears_the_end: bool) -> None:
        self._max, self._hears_the_end = max_message_bytes, hears_the_end
        self._outbox: queue.SimpleQueue[list[Buffer] | None] = queue.SimpleQueue()
        self._ended = False

    def attach(self, incoming: Iterator[bytes], cancel: Callable[[], Any], close: Callable[[], Any]) -> None:
        """The stream's other half, and how to end it: at once, and for good."""
        self._incoming, self._cancel, self._close = incoming, cancel, close

    def outgoing(self) -> Iterator[bytes]:
        """The bodies for gRPC to send. Each is joined when its turn comes, so that none that waits is held twice."""
        while (body := self._outbox.get()) is not None:
            yield b"".join(body)

    def send(self, tag: int, frames: Frames) -> None:
        if self._ended:
            raise ConnectionError("the stream has ended")
        self._outbox.put(pieces(tag, frames))

    def receive(self, timeout: float | None = None, limit: int | None = None) -> tuple[int, Frames]:
        late = threading.Event()

        def give_up() -> None:
            late.set()
            self._cancel()

        timer = threading.Timer(timeout or 0, give_up)
        timer.daemon = True
        if timeout is not None:
            timer.start()
        try:
            body = next(self._incoming)
        except Exception as error:  # the end of the stream, or what gRPC calls an RpcError
            if late.is_set():
                raise TimeoutError("no message came in time") from None
            raise EOFError(getattr(error, "details", str)() or "") from None
        finally:
            timer.cancel()
        if len(body) > (limit or self._max):
            raise ValueError(f"a message of {len(body)} bytes is larger than the {limit or self._max} that are allowed")
        return split(writable(body))

    def hang_up(self) -> None:
        self._ended = True
        self._outbox.put(None)  # after what waits there: a client that is refused hears why
        if not self._hears_the_end:
            self._cancel()

    def close(self) -> None:
        self.hang_up()
        self._close()


class _GrpcListener(Listener):
    def __init__(self, transport: Grpc, address: str | None) -> None:
        import grpc

        self._max = transport.max_message_bytes
        self._incoming: queue.SimpleQueue[_GrpcWire | None] = queue.SimpleQueue()
        method = grpc.stream_stream_rpc_method_handler(self._talk)
        talk = grpc.method_handlers_generic_handler("minips", {"Talk": method})
        self._server = grpc.server(_ThreadEach(), [talk], options=transport.options())
        host, port = transport.host_and_port(address)
        try:
            port = self._server.add_insecure_port(netloc(host, port))
        except RuntimeError as error:
            self._server.stop(None).wait(HANDSHAKE_S)
            raise transport.unservable(address, error) from None
        self.address = transport.address(host, port)
        self._server.start()

    def _talk(self, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        wire = _GrpcWire(self._max, hears_the_end=True)
        wire.attach(requests, context.cancel, lambda: None)
        self._incoming.put(wire)
        return wire.outgoing()

    def accept(self) -> Wire:
        wire = self._incoming.get()
        if wire is None:
            raise OSError("the listener is closed")
        return wire

    def hang_up(self) -> None:
        self._incoming.put(None)

    def close(self) -> None:
        self._server.stop(None).wait(HANDSHAKE_S)


class _ThreadEach(Executor):
    """A thread for each stream: in a pool of a fixed size the next client would wait until another one leaves."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        future: Future[Any] = Future()

        def run() -> None:
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=run, name="minips-grpc", daemon=True).start()
        return future
