"""TLS between a socket and a wire: it encrypts sent bytes, decrypts received bytes, and checks the server's identity.

The standard library's SSL sockets support neither scatter-gather nor two concurrent threads. So this module separates
the two directions: OpenSSL works on memory, under a lock that no thread holds while it waits for the network.
"""

import socket
import ssl
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from minips.stages.transports.base import HANDSHAKE_S
from minips.stages.transports.patience import IncompleteRecordError, Limit, StallTimer, timeval

CHUNK_BYTES = 2**18
"""The number of plain bytes that are encrypted at a time."""


class TlsSocket:
    """The part of a stream socket that a wire needs, with TLS over a connected one. It shakes hands when first used."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, stalled_s: float, host: str | None = None) -> None:
        self._sock, self._stalled_s = sock, stalled_s
        self.settimeout, self.setsockopt = sock.settimeout, sock.setsockopt
        self.shutdown, self.close = sock.shutdown, sock.close
        sock.settimeout(None)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeval(Limit(HANDSHAKE_S).tick))
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=host is None, server_hostname=host)
        self._encrypting, self._sending = threading.Lock(), threading.Lock()
        self._cipher = memoryview(bytearray(CHUNK_BYTES))
        self._greeted = False

    def shake_hands(self) -> None:
        """Complete the handshake. ConnectionError if the peer does not use TLS or is not the expected peer."""
        if self._greeted:  # flushing now might make a reader wait
            return
        left = Limit(HANDSHAKE_S)
        while not self._greeted:
            try:
                with self._encrypting:
                    self._tls.do_handshake()
                    self._greeted = True
            except ssl.SSLWantReadError:
                self._flush()
                with suppress(BlockingIOError):
                    self._more()
                if left.over():
                    raise ConnectionError("The peer did not agree on TLS in time. Does it speak TLS?") from None
            except ssl.SSLError as error:
                self._flush()
                raise ConnectionError(f"There is no TLS with the peer: {error.reason or error}.") from None
        self._flush()

    def sendmsg(self, buffers: Sequence[memoryview], ancillary: Sequence[Any] = (), flags: int = 0) -> int:
        """Send all of the buffers, and return the number of their bytes. BlockingIOError if it may not wait."""
        if flags:  # what is encrypted must be sent
            raise BlockingIOError
        self.shake_hands()
        total = 0
        for buffer in buffers:
            for start in range(0, len(buffer), CHUNK_BYTES):
                with self._sending:  # ciphertext must be sent in the order of encryption
                    with self._encrypting:
                        self._tls.write(buffer[start : start + CHUNK_BYTES])
                        cipher = self._outgoing.read()
                    self._put(cipher)
            total += len(buffer)
        return total

    def recv_into(self, room: memoryview, nbytes: int = 0, flags: int = 0) -> int:
        """Receive at least one byte. Return 0 if the peer is gone; BlockingIOError if no whole record came in time."""
        self.shake_hands()
        for once_more in (True, False):
            try:
                with self._encrypting:
                    return int(self._tls.read(len(room), room))
            except ssl.SSLWantReadError:
                if once_more and not self._more():
                    return 0
            except ssl.SSLError as error:  # the connection ended, or the bytes are not TLS
                raise ConnectionError(f"The TLS connection broke: {error.reason or error}.") from None
        raise IncompleteRecordError

    def _more(self) -> bool:
        """Read the network's next bytes. Return False at its end."""
        got = self._sock.recv_into(self._cipher)
        with self._encrypting:
            self._incoming.write(self._cipher[:got])
        if not got and not self._greeted:
            raise ConnectionError("The peer hung up before TLS was agreed on.")
        return bool(got)

    def _flush(self) -> None:
        with self._sending:
            with self._encrypting:
                cipher = self._outgoing.read()
            self._put(cipher)

    def _put(self, cipher: bytes) -> None:
        left, stall = memoryview(cipher), StallTimer(self._stalled_s)
        while left:
            try:
                sent = self._sock.send(left)
            except BlockingIOError:
                sent = 0
            stall.count(sent)
            left = left[sent:]
