"""Transports over streams, each defined by a way to listen and a way to dial. A server has a thread per connection."""

import os
import socket
import threading
import time
import weakref
from abc import abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from minips.stage import option
from minips.stages.transports import base
from minips.stages.transports.auth import authenticate, challenge
from minips.stages.transports.base import HANDSHAKE_S, Channel, Endpoint, Handler, Service, Transport, service_of
from minips.stages.transports.deferred import Deferred
from minips.stages.transports.patience import STALLED_S, STRANGER_S, receive_within
from minips.stages.transports.streams import StreamChannel, answer_of, refusal
from minips.stages.transports.wire import POOL, Interruptible, Listener, Wire
from minips.words import message_of, public_message

P = TypeVar("P", bound=Interruptible)


class StreamTransport(Transport):
    """A transport defined by ``listen`` and ``dial``."""

    stranger_s: float = STRANGER_S
    """The seconds within which an authenticated peer must make its first call."""

    @abstractmethod
    def listen(self, address: str | None) -> Listener[Any]:
        """Listen for connections at ``address``, or at a fresh local address."""

    @abstractmethod
    def dial(self, address: str, timeout: float) -> Wire:
        """Connect to a listener."""

    def serve(self, handler: Handler | Service, address: str | None = None, token: str = "") -> Endpoint:
        return ThreadedEndpoint(
            self.listen(address), partial(_answer_calls, service_of(handler), token, self.stranger_s)
        )

    def connect(self, address: str, token: str = "", timeout: float = 10.0) -> Channel:
        return StreamChannel(authenticate(self.dial(address, timeout), token, address, timeout), address)


@dataclass(frozen=True, kw_only=True)
class PatientTransport(StreamTransport):
    """A transport that can measure a slow peer's progress."""

    stranger_s: float = option(STRANGER_S, "longest wait for a peer's first call", above=0, unit="s", operator=True)
    stalled_s: float = option(
        STALLED_S, "longest time that a peer may send a message below 1 kB/s", above=0, unit="s", operator=True
    )


class ThreadedEndpoint(Endpoint, Generic[P]):
    """One thread accepts connections; for each, a thread runs ``talk``, which answers the peer until it is gone."""

    def __init__(self, listener: Listener[P], talk: Callable[[P], None]) -> None:
        self.address = listener.address
        self._listener, self._talk, self._lock, self._closing = listener, talk, threading.Lock(), False
        self._wires = weakref.WeakKeyDictionary[threading.Thread, P]()  # forgets threads that have ended
        self._accepting = threading.Thread(target=self._accept, name=f"minips-accept-{self.address}", daemon=True)
        try:
            self._accepting.start()
        except RuntimeError:
            listener.close()
            raise

    def close(self) -> None:
        with self._lock:
            self._closing = True
            wires = dict(self._wires)
        self._listener.shutdown()
        for wire in wires.values():
            wire.shutdown()
        deadline = time.monotonic() + HANDSHAKE_S
        for thread in (self._accepting, *wires):
            if thread is not threading.current_thread():
                thread.join(max(deadline - time.monotonic(), 0.0))

    def _accept(self) -> None:
        try:
            while not self._closing:
                self._accept_one()
        finally:
            self._listener.close()

    def _accept_one(self) -> None:
        try:
            peer = self._listener.accept()
        except OSError:
            time.sleep(0 if self._closing else 0.05)  # perhaps out of descriptors: give other threads time to free some
            return
        thread = threading.Thread(target=self._talk, args=(peer,), name=f"minips-serve-{self.address}", daemon=True)
        with self._lock:
            if not self._closing:
                self._wires[thread] = peer
                try:
                    thread.start()
                    return
                except RuntimeError as error:
                    del self._wires[thread]
                    words = f"{error}. Is there a limit on threads or on memory (ulimit -u, ulimit -v)?"
                    if isinstance(peer, Wire):
                        with suppress(OSError):
                            peer.send(*refusal(RuntimeError(f"The server cannot serve one more connection: {words}")))
        peer.close()


def _answer_calls(service: Service, token: str, stranger_s: float, first: Wire) -> None:
    """Answer the calls over a wire, one after the other, until the peer is gone."""
    wire: Wire | None = first
    connection, previous, current = None, Deferred(first), Deferred(first)
    try:
        challenge(first, token, HANDSHAKE_S)
        try:
            while wire:
                try:
                    tag, frames = wire.receive() if connection else receive_within(stranger_s, wire)
                except ValueError as error:  # too large or malformed: the start of the next message is unknown
                    words = f"The message cannot be read, and the connection ends: {message_of(error).rstrip('.')}."
                    previous.wait_until_sent()
                    wire.send(*refusal(ValueError(public_message(error, words))))
                    raise
                if tag == POOL:
                    wire = wire.join(frames)
                    continue
                connection = connection or service.connection()
                if previous.due:  # else a connection would have two requests at a time
                    previous.wait_until_known()
                answer = answer_of(connection, frames, current.reply)
                del frames  # before the answer is sent, so that the next call can use their memory
                if answer[1] is base.DEFERRED:  # meanwhile, this thread notices if the peer leaves
                    current.due = True
                    previous, current = current, Deferred(first, current)
                    continue
                if previous.due:
                    previous.wait_until_sent()
                try:
                    wire.send(*answer)
                except RuntimeError as error:  # this side could not begin to send the answer
                    wire.send(*refusal(error))
                del answer
        finally:
            if wire:
                wire.shutdown()
                if connection:
                    connection.cancel()
                previous.wait_until_sent()  # or a descriptor would be closed while another thread sends
                wire.close()  # before the handler waits for its peer to reconnect
            if connection:
                connection.closed()
    except (EOFError, OSError, ValueError):
        pass  # the peer has gone, sent nonsense or did not know the token: other connections continue
    finally:
        if wire:
            wire.close()


class SocketListener(Listener[P]):
    """A listener on a bound stream socket; ``wire`` makes the wire for an accepted socket."""

    def __init__(self, sock: socket.socket, address: str, wire: Callable[[socket.socket], P]) -> None:
        self._sock, self.address, self._wire = sock, address, wire

    def accept(self) -> P:
        return self._wire(self._sock.accept()[0])

    def shutdown(self) -> None:
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:  # shutdown wakes an accept only on Linux; elsewhere a connection does
            with suppress(OSError), socket.socket(self._sock.family) as visitor:
                visitor.settimeout(1)
                visitor.connect(self._sock.getsockname())

    def close(self) -> None:
        with suppress(OSError):
            if isinstance(place := self._sock.getsockname(), str):
                os.unlink(place)
        self._sock.close()
