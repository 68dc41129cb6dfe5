"""Two processes of one machine: the standard library's connections over a Unix socket (a named pipe on Windows)."""

import os
import socket
import struct
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from minips.stage import Frames, option, register
from minips.stages.transports.base import fresh_name
from minips.stages.transports.streams import StreamTransport
from minips.stages.transports.wire import MOST_FRAMES, Listener, Wire

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

_HEAD = struct.Struct("<BI")


@register
@dataclass(frozen=True)
class Pipe(StreamTransport):
    """``multiprocessing.connection`` between processes of one machine: ``pipe://name``.

    A message is a small head (tag, number of frames, their lengths) and then each frame by itself.
    """

    name = "pipe"
    scheme = "pipe"
    max_message_bytes: int = option(2**31, "largest message that is taken", minimum=2**10, unit="byte", operator=True)

    def listen(self, address: str | None) -> Listener:
        return _PipeListener(self, address or f"pipe://{fresh_name()}")

    def dial(self, address: str, timeout: float) -> Wire:
        from multiprocessing.connection import Client

        try:
            return _PipeWire(Client(_place(self.rest(address))), self.max_message_bytes)
        except OSError as error:
            raise ConnectionError(f"No server listens at {address}: {error}.") from None


def _place(name: str) -> str | tuple[str, int]:
    """Where the operating system keeps a pipe of this name; on Linux nothing is left on the disk. Without Unix sockets,
    and without Windows' pipes, it is a port of this machine.
    """
    if sys.platform == "win32":
        return rf"\\.\pipe\{name}"
    if not hasattr(socket, "AF_UNIX"):
        host, _, port = name.rpartition(":")
        return (host, int(port)) if port.isdigit() else ("127.0.0.1", 0)
    if sys.platform == "linux":
        return f"\0{name}"
    import tempfile  # which brings the compressors of archives along

    return str(Path(tempfile.gettempdir()) / name)


class _PipeWire(Wire):
    resumes = True

    def __init__(self, pipe: "Connection", max_message_bytes: int) -> None:
        self._pipe, self._max = pipe, max_message_bytes
        self._closing = threading.Lock()

    def send(self, tag: int, frames: Frames) -> None:
        sizes = [len(frame) for frame in frames]
        self._pipe.send_bytes(_HEAD.pack(tag, len(frames)) + struct.pack(f"<{len(frames)}Q", *sizes))
        for frame in frames:
            if len(frame):
                self._pipe.send_bytes(frame)

    def receive(self, timeout: float | None = None, limit: int | None = None) -> tuple[int, Frames]:
        if timeout is not None and not self._pipe.poll(timeout):
            raise TimeoutError("no message came in time")
        head = self._pipe.recv_bytes(min(limit or self._max, _HEAD.size + 8 * MOST_FRAMES))
        try:
            tag, count = _HEAD.unpack_from(head)
            sizes = struct.unpack_from(f"<{count}Q", head, _HEAD.size)
        except struct.error:
            raise ValueError("the head of a message is malformed") from None
        if sum(sizes) > (limit or self._max):
            raise ValueError(
                f"a message of {sum(sizes)} bytes is larger than the {limit or self._max} that are allowed"
            )
        frames = [bytearray(self._pipe.recv_bytes(size) if size else b"") for size in sizes]
        if any(len(frame) != size for frame, size in zip(frames, sizes, strict=True)):
            raise ValueError("a frame is shorter than the head of its message says")
        return tag, [memoryview(frame) for frame in frames]

    def hang_up(self) -> None:
        with self._closing:
            if not self._pipe.closed and sys.platform != "win32":
                with suppress(OSError), socket.socket(fileno=os.dup(self._pipe.fileno())) as twin:
                    twin.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.hang_up()
        with self._closing:
            self._pipe.close()


class _PipeListener(Listener):
    def __init__(self, transport: Pipe, address: str) -> None:
        from multiprocessing import connection

        self.address, self._transport = address, transport
        self._place = _place(transport.rest(address))
        try:
            self._listener = connection.Listener(self._place, backlog=128)
        except OSError as error:
            raise OSError(
                f"{address} cannot be served: {error.strerror}. Choose another name, or None for a fresh one."
            ) from None
        if isinstance(self._place, tuple):  # which has its port only now
            self._place = self._listener.address
            self.address = "pipe://{}:{}".format(*self._place)

    def accept(self) -> Wire:
        return _PipeWire(self._listener.accept(), self._transport.max_message_bytes)

    def hang_up(self) -> None:
        from multiprocessing.connection import Client

        with suppress(OSError):
            Client(self._place).close()  # the standard library's accept can only be woken by a visitor

    def close(self) -> None:
        self._listener.close()
