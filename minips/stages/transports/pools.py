"""Several connections as one: the first carries the messages, and all together carry large ones.

A network may give a single connection less than it has, and a kernel copies with one core for each. So a large message
is cut into equal shares, one for each connection, which travel side by side.

The client opens the connections of a pool, and each proves that it knows the token. Then it says over each where it
belongs, and from then on the first one announces each message whose frames take 8 MiB or more. Both have the tag POOL:

    where it belongs     frames: the pool's key, 16 random bytes; the connection's place from 0, and how many there are
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
"""The most connections of one pool."""
SHARED_BYTES = 2**23
"""Less than this takes longer over several connections than over one: threads have to be woken."""
COMPLETE_S = 5.0
"""How long the connections of a pool wait for each other."""


class Pool:
    """The helper of a pool's first wire with large messages; the other wires, which are the pool's own."""

    least_bytes = SHARED_BYTES

    def __init__(self, wires: Sequence[SocketWire]) -> None:
        self.first, *others = self._wires = wires
        """The wire that carries the messages."""
        self.others: Sequence[SocketWire] = others
        """The wires that help."""
        self.first.pool = self
        self._blocks = Blocks()
        self._helpers = ThreadPoolExecutor(2 * len(wires), "minips-pool")  # both directions at once
        self.coming: tuple[int, Frames, list[Future[None]]] | None = None
        """Tag and frames of a large message of which parts have come, and what is filled by each wire."""

    def send(self, tag: int, frames: Frames) -> None:
        """Send a message over all the wires."""
        body = padded(frames)
        self.first.write(pieces(POOL, [bytes([tag]), lengths_of(frames)]))
        try:
            shares = zip(self._wires, self._shares(size(body)), strict=True)
            for sent in [self._helpers.submit(wire.write, between(body, share)) for wire, share in shares]:
                sent.result()
        except BaseException:
            self.first.shutdown()  # where the next message begins is not known any more
            raise

    def receive(self, deadline: float | None, told: Frames | None = None) -> tuple[int, Frames]:
        """A message that comes over all the wires: one that ``told`` announces, or the rest of the one before."""
        self.coming = self.coming or self._begin(told or [])
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

    def _begin(self, told: Frames) -> tuple[int, Frames, list[Future[None]]]:
        """Have the wires take their shares of a message that has been announced."""
        (tag,), sizes_told = told
        check_count(len(sizes_told) // 8)
        sizes = lengths(memoryview(sizes_told), 0, len(sizes_told) // 8, self.first.framer.max_message_bytes)
        block = self._blocks.take(sum(map(padded_size, sizes)))
        shares = zip(self._wires, self._shares(len(block)), strict=True)
        return tag, cut(block, sizes), [self._helpers.submit(wire.fill, block[share]) for wire, share in shares]

    def _shares(self, total: int) -> list[slice]:
        """The bytes that travel over each wire."""
        step = -(-total // (ALIGNMENT * len(self._wires))) * ALIGNMENT
        return [slice(step * place, min(step * (place + 1), total)) for place in range(len(self._wires))]

    def close(self) -> None:
        """Let go of threads and wires, which the first wire has shut down."""
        self._helpers.shutdown()
        for wire in self.others:
            wire.close()


def pooled(wires: Sequence[SocketWire]) -> SocketWire:
    """The client's side: one wire of several to the same peer."""
    if len(wires) == 1:
        return wires[0]
    key = secrets.token_bytes(KEY_BYTES)
    for place, wire in enumerate(wires):
        wire.send(POOL, [key, bytes([place, len(wires)])])
    return Pool(wires).first


class Pools:
    """The server's side: pools whose connections come in one by one, each in a thread of its own."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._come: dict[bytes, dict[int, SocketWire]] = {}

    def join(self, wire: SocketWire, frames: Frames) -> SocketWire | None:
        """Wait for the other wires of this one's pool. The pool for its first wire; None for the others, which are the
        pool's from now on.

        TimeoutError where they do not come, ValueError where the frames make no sense.
        """
        key, place, count = _told(frames)
        with self._changed:
            come = self._come.setdefault(key, {})
            if place in come:
                raise ValueError(f"there is a connection {place} of this pool already")
            come[place] = wire
            self._changed.notify_all()
            complete, left = False, Limit(COMPLETE_S)
            while not (complete or left.over()):
                complete = self._changed.wait_for(lambda: come.keys() == {*range(count)}, left.tick)
            self._come.pop(key, None)
        if not complete:
            raise TimeoutError(f"{len(come)} of the {count} connections of a pool came")
        return Pool([come[number] for number in range(count)]).first if place == 0 else None


def _told(frames: Frames) -> tuple[bytes, int, int]:
    if [len(frame) for frame in frames] == [KEY_BYTES, 2]:
        place, count = frames[1]
        if place < count and 1 < count <= MOST:
            return bytes(frames[0]), place, count
    raise ValueError("a connection does not say which pool it belongs to")


def between(buffers: Sequence[Buffer], share: slice) -> list[Buffer]:
    """The part of these buffers, one behind the other, that lies in a share; none of it is copied."""
    found: list[Buffer] = []
    end = 0
    for buffer in buffers:
        begin, end = end, end + len(buffer)
        if some := memoryview(buffer)[max(share.start - begin, 0) : max(share.stop - begin, 0)]:
            found.append(some)
    return found
