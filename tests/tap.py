"""A tap in a TCP connection: it passes everything on and keeps what went by."""

import socket
import struct
import threading
from contextlib import ExitStack, contextmanager, suppress

from minips.stages.transports.framing import HEAD, stream_nbytes

WAIT_S = 10.0


class Tap:
    """``address`` leads to the server behind it; ``asked`` has the bytes of each connection that went to the server."""

    def __init__(self, address):
        self._host, _, port = address.removeprefix("tcp://").rpartition(":")
        self._port, self._listener = int(port), socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self.asked, self._sockets, self._threads = [], [], []
        self._start(self._accept)

    def messages(self):
        """Of each whole message that went to the server: its tag, and its frames' lengths."""
        for asked in self.asked:
            body = bytes(asked)
            while body:
                tag, count = HEAD.unpack_from(body)
                sizes = struct.unpack_from(f"<{count}Q", body, HEAD.size)
                yield tag, sizes
                body = body[stream_nbytes(sizes) :]

    def close(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        for sock in self._sockets:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(WAIT_S)
        for sock in (self._listener, *self._sockets):
            sock.close()

    def _start(self, run, *arguments):
        self._threads.append(threading.Thread(target=run, args=arguments, daemon=True))
        self._threads[-1].start()

    def _accept(self):
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection((self._host, self._port), WAIT_S)
                self._sockets += [near, far]
                self.asked.append(bytearray())
                self._start(self._pass_on, near, far, self.asked[-1])
                self._start(self._pass_on, far, near, bytearray())

    def _pass_on(self, source, target, kept):
        with suppress(OSError):
            while some := source.recv(2**16):
                kept += some
                target.sendall(some)
            target.shutdown(socket.SHUT_WR)


@contextmanager
def tapped(*addresses):
    """A tap for each address."""
    with ExitStack() as stack:
        taps = [Tap(address) for address in addresses]
        for tap in taps:
            stack.callback(tap.close)
        yield taps
