"""A worker of an all-reduce: it answers the other workers, calls them, and adds up gradients with them.

The answering thread puts each message into its sender's box and never waits. The worker takes the message out when its
schedule needs it. So all workers can send at the same time, even if the messages are large.
"""

import struct
import threading
import time
from collections import defaultdict, deque
from collections.abc import Sequence
from functools import partial
from typing import TypeVar

from minips.core.config import Config
from minips.core.limits import most_bytes
from minips.core.reduction import AllReduceState, all_reduce
from minips.core.sessions import Receive, Send, Session, carry_out
from minips.results.trace import Trace
from minips.stage import Frames, Tensors
from minips.stages.transports import Channel, Connection, Service
from minips.stages.transports.base import Closable
from minips.stages.transports.framing import too_large
from minips.stages.transports.patience import Limit
from minips.words import message_of

T = TypeVar("T")
_SENT = struct.Struct("<d")


def greeting_of(rank: int) -> Frames:
    """The frames of a connection's first call, which tell the caller's rank."""
    return [str(rank).encode()]


class LostError(ConnectionError):
    """Another worker is gone, so the sum cannot be completed. The cause is in that worker's own error."""


class Peer(Closable):
    """One rank's endpoint, and its channels to the ranks to which it sends. Use with ``with``, then call `connect`.

    ``like`` has the names, shapes and dtypes of the gradients. ``address`` is the endpoint's (None: a fresh local one).
    """

    def __init__(self, config: Config, rank: int, like: Tensors, token: str, address: str | None = None) -> None:
        self.rank, self.config = rank, config
        self.trace = Trace(f"worker {rank}")
        self.bytes_sent = self.bytes_received = 0
        self._token, self._node = token, config.shaped_transport()
        self.reduction = AllReduceState(config, rank, like, self.trace)
        self._changed = threading.Condition()
        self._boxes: dict[int, deque[Frames]] = defaultdict(deque)
        self._gone: dict[int, str] = {}
        self._channels: dict[int, Channel] = {}
        self._endpoint = self._node.serve(Service(partial(_PeerConnection, self)), address, token)
        self.address = self._endpoint.address

    def connect(self, addresses: Sequence[str], timeout: float = 10.0) -> None:
        """Connect to the ranks to which this one sends; ``addresses`` are those of all ranks."""
        greeting = greeting_of(self.rank)
        for rank in self.reduction.targets:
            try:
                self._channels[rank] = self._node.connect(addresses[rank], self._token, timeout)
                nbytes = sum(map(len, greeting))
                self.bytes_sent += nbytes
                self.trace.laps(("",), (time.monotonic(),) * 2, "greeting", rank, None, nbytes)
                self._channels[rank].call(greeting).result(timeout)
            except ConnectionError as error:
                raise LostError(f"Worker {rank} cannot be reached: {message_of(error)}") from error

    def carry_out(self, session: Session[T]) -> T:
        """Carry out a session, such as an all-reduce of ``reduction``, in this thread. Returns its result.

        LostError if another worker is gone, TimeoutError if a worker does not send.
        """
        return carry_out(session, {Send: self._send, Receive: self._receive})

    def mean(self, step: int, gradients: Tensors, ending: bool = False) -> tuple[Tensors, bool]:
        """Return the mean of all workers' gradients of this step, the same bits at every worker, and True if a worker
        is ``ending``. DivergedError, for all the workers, if the sum overflows; other errors as for `carry_out`.
        """
        self.reduction.begin(step, gradients, ending)
        return self.carry_out(all_reduce(self.reduction)), self.reduction.ending

    def close(self) -> None:
        """Close all connections."""
        for channel in self._channels.values():
            channel.close()
        self._endpoint.close()

    def _send(self, message: Send) -> None:
        to, began = message.to, time.monotonic()
        frames: Frames = [_SENT.pack(began), *message.parcel]
        sent, most = sum(map(len, frames)), most_bytes(self._node)
        if sent > most:  # the receiver would only hang up
            raise too_large([sent], most)
        self.bytes_sent += sent
        try:
            self._channels[to].ask(frames, _Sent(self, to))
        except ConnectionError as error:
            raise LostError(f"Worker {to} is gone: {message_of(error)}") from error
        finally:
            self.trace.laps(("transfer",), (began, time.monotonic()), "hop", to, self.trace.step, sent)

    def _receive(self, wanted: Receive) -> Frames:
        """The next message from this sender. The trace shows a wait until it was sent, then the transfer."""
        source, began, left = wanted.source, time.monotonic(), Limit(self.config.timeout_s)
        with self._changed:
            while not self._changed.wait_for(lambda: self._boxes[source] or source in self._gone, left.tick):
                if left.over():
                    raise TimeoutError(
                        f"Worker {self.rank} waited {self.config.timeout_s:g} seconds for hop {wanted.number} of step "
                        f"{self.trace.step} from worker {source}. Is it running, and are those that it waits for? "
                        "Config.timeout_s sets how long to wait."
                    )
            if not self._boxes[source]:
                raise LostError(f"Worker {source} is gone: {self._gone[source]}")
            frames = self._boxes[source].popleft()
            nbytes = sum(map(len, frames))
            self.bytes_received += nbytes
        received = time.monotonic()
        sent = min(max(_SENT.unpack(frames[0])[0], began), received)
        self.trace.laps(("wait", "transfer"), (began, sent, received), "hop", source, self.trace.step, nbytes)
        return frames[1:]

    def _rank(self, frames: Frames) -> int:
        try:
            rank = int(bytes(frames[0]))
        except (ValueError, IndexError):
            rank = -1
        if not 0 <= rank < self.config.workers:
            raise ValueError(f"Expected the number of a worker, 0 to {self.config.workers - 1}.")
        return rank

    def _lose(self, rank: int, why: str) -> None:
        with self._changed:
            self._gone.setdefault(rank, why)
            self._changed.notify_all()


class _Sent:
    """The caller for a message to another rank, which the rank answers with an empty message."""

    def __init__(self, peer: Peer, to: int) -> None:
        self._peer, self._to = peer, to

    def arrived(self, frames: Frames) -> None:
        """Do nothing: the answer only shows that the rank has the message."""

    def failed(self, error: Exception) -> None:
        self._peer._lose(self._to, message_of(error))


class _PeerConnection(Connection):
    """A connection from another rank to this one."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self.rank: int | None = None

    def answer(self, frames: Frames) -> Frames:
        """Put the other worker's message into its box. The first call tells that worker's rank."""
        peer = self._peer
        with peer._changed:
            if self.rank is None:
                self.rank = peer._rank(frames)
                nbytes = sum(map(len, frames))
                peer.bytes_received += nbytes
                peer.trace.laps(("", ""), (time.monotonic(),) * 3, "greeting", self.rank, None, nbytes)
            elif not frames or len(frames[0]) != _SENT.size:
                raise ValueError("A message between workers must start with the time at which it was sent.")
            else:
                peer._boxes[self.rank].append(frames)
                peer._changed.notify_all()
        return []

    def closed(self) -> None:
        if self.rank is not None:
            self._peer._lose(self.rank, "its connection closed")
