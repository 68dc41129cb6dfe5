"""Several connections as one: the first carries the messages, and all carry parts of large messages.

A network may give a single connection less than its full rate, and a kernel uses one core per connection for copies. So
a large message is divided into equal shares, one for each connection, which are sent in parallel.

The client opens the connections of a pool, and each proves that it knows the token. Then the client states over each
connection where it belongs. From then on, the first connection announces each message whose frames take 8 MiB or more.
Both messages have the tag POOL:

    where it belongs     frames: the pool's key, 16 random bytes; the connection's place from 0, and their number
                         (1 byte each)
    a large message      frames: its tag (1 byte); its frames' lengths (8 bytes each). Then, over each connection, its
                         share: the padded frames are cut every ⌈bytes / (64 · connections)⌉ · 64 bytes
"""

import secrets
import threading
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait

from minips.stage import Buffer, Frames
from minips.stages.transports.framing import (
    ALIGNMENT,
    Blocks,
    check_count,
    cut,
    lengths,
    lengths_of,
    padded,
    padded_size,
    pieces,
    size,
)
from minips.stages.transports.patience import Limit
from minips.stages.transports.sockets import SocketWire
from minips.stages.transports.wire import POOL

KEY_BYTES, MOST = 16, 16
"""The length of a pool's key, in bytes, and the maximum number of connections of one pool."""
SHARED_BYTES = 2**23
"""Smaller messages take longer over several connections than over one, since threads must wake up."""
COMPLETE_S = 5.0
"""The longest time, in seconds, that the connections of a pool wait for each other."""


class Pool:
    """A pool: its first wire, and its other wires, which carry shares of the first wire's large messages."""

    least_bytes = SHARED_BYTES

    def __init__(self, wires: Sequence[SocketWire]) -> None:
        self.first, *others = self._wires = wires
        """The wire that carries the messages."""
        self.others: Sequence[SocketWire] = others
        """The helping wires."""
        self.first.pool = self
        self._blocks = Blocks()
        self._helpers = ThreadPoolExecutor(2 * len(wires), "minips-pool")  # both directions at once
        self.coming: tuple[int, Frames, list[Future[None]]] | None = None
        """The tag and frames of a large message that has partly arrived, and the futures of its shares."""

    def send(self, tag: int, frames: Frames) -> None:
        """Send a message over all the wires."""
        body = padded(frames)
        self.first.write(pieces(POOL, [bytes([tag]), lengths_of(frames)]))
        try:
            shares = zip(self._wires, self._shares(size(body)), strict=True)
            for sent in [self._helpers.submit(wire.write, between(body, share)) for wire, share in shares]:
                sent.result()
        except BaseException:
            self.first.shutdown()  # the start of the next message is lost
            raise

    def receive(self, deadline: float | None, announced: Frames | None = None) -> tuple[int, Frames]:
        """Receive a message over all the wires: the one that ``announced`` describes, or the rest of a begun one."""
        self.coming = self.coming or self._begin(announced or [])
        tag, frames, filling = self.coming
        left = None if deadline is None else max(deadline - time.monotonic(), 0)
        filled, late = wait(filling, left, FIRST_EXCEPTION)
        try:
            for one in filled:
                one.result()
        except BaseException:
            self.first.shutdown()
            raise
        if late:
            raise TimeoutError("no message came in time")
        self.coming = None
        return tag, frames

    def _begin(self, announced: Frames) -> tuple[int, Frames, list[Future[None]]]:
        """Let the wires receive their shares of an announced message."""
        (tag,), packed = announced
        check_count(len(packed) // 8)
        sizes = lengths(memoryview(packed), 0, len(packed) // 8, self.first.framer.max_message_bytes)
        block = self._blocks.allocate(sum(map(padded_size, sizes)))
        shares = zip(self._wires, self._shares(len(block)), strict=True)
        return tag, cut(block, sizes), [self._helpers.submit(wire.fill, block[share]) for wire, share in shares]

    def _shares(self, total: int) -> list[slice]:
        """Return each wire's range of bytes."""
        step = -(-total // (ALIGNMENT * len(self._wires))) * ALIGNMENT
        return [slice(step * place, min(step * (place + 1), total)) for place in range(len(self._wires))]

    def close(self) -> None:
        """Free threads and wires, after the first wire has shut them down."""
        self._helpers.shutdown()
        for wire in self.others:
            wire.close()


def pool_of(wires: Sequence[SocketWire]) -> SocketWire:
    """Join several wires to the same peer into one wire, on the client's side."""
    if len(wires) == 1:
        return wires[0]
    key = secrets.token_bytes(KEY_BYTES)
    for place, wire in enumerate(wires):
        wire.send(POOL, [key, bytes([place, len(wires)])])
    return Pool(wires).first


class Pools:
    """The server's side: joins connections into pools; each connection arrives separately, in its own thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._come: dict[bytes, dict[int, SocketWire]] = {}

    def join(self, wire: SocketWire, frames: Frames) -> SocketWire | None:
        """Wait for the other wires of this wire's pool. Return the first wire if this is the first one. Otherwise
        return None: the wire then belongs to the pool.

        TimeoutError if the other wires do not arrive, ValueError for malformed frames.
        """
        key, place, count = _parse_place(frames)
        with self._changed:
            come = self._come.setdefault(key, {})
            if place in come:
                raise ValueError(f"this pool already has a connection {place}")
            come[place] = wire
            self._changed.notify_all()
            complete, left = False, Limit(COMPLETE_S)
            while not (complete or left.over()):
                complete = self._changed.wait_for(lambda: come.keys() == {*range(count)}, left.tick)
            self._come.pop(key, None)
        if not complete:
            raise TimeoutError(f"{len(come)} of the {count} connections of a pool came")
        return Pool([come[number] for number in range(count)]).first if place == 0 else None


def _parse_place(frames: Frames) -> tuple[bytes, int, int]:
    if [len(frame) for frame in frames] == [KEY_BYTES, 2]:
        place, count = frames[1]
        if place < count and 1 < count <= MOST:
            return bytes(frames[0]), place, count
    raise ValueError("a connection does not say which pool it belongs to")


def between(buffers: Sequence[Buffer], share: slice) -> list[Buffer]:
    """Return the part of these concatenated buffers that lies in a share, without a copy."""
    found: list[Buffer] = []
    end = 0
    for buffer in buffers:
        begin, end = end, end + len(buffer)
        if some := memoryview(buffer)[max(share.start - begin, 0) : max(share.stop - begin, 0)]:
            found.append(some)
    return found
