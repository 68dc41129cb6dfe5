"""``python -m benchmarks stalls``: the calls of a good client beside twenty stalled peers, and without them.

The server runs in its own process. In each round the client first calls alone for a while. Then the peers connect,
authenticate, make a call, send half of another and stop, and the client calls for as long again. A call is 4 kB there
and back.
"""

import multiprocessing as mp
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import Any, cast

from rich.table import Table

from benchmarks import base
from benchmarks.base import Chart
from minips.lab.measure.turns import Spread, Watch
from minips.stage import Frames, build, missing, stage_class
from minips.stages.transports import Tcp, Zmq
from minips.stages.transports.auth import answer_challenge
from minips.stages.transports.framing import pieces
from minips.stages.transports.wire import CALL

TRANSPORTS, PEERS, TURN_S, ROUNDS = ("pipe", "tcp", "shm", "http", "zmq"), 20, 1.0, 5
CALL_BYTES, HALF_BYTES, TOKEN, WAIT_S = 4_000, 100_000, "benchmarks", 30.0


@dataclass(frozen=True)
class Row:
    """One transport: calls a second alone and beside the peers, and the latter over the former, round by round."""

    contender: str
    alone: Spread | None = None
    beside: Spread | None = None
    over_alone: Spread | None = None
    skipped: str = ""


def measure(
    transports: Sequence[str] | None = None, rounds: int = ROUNDS, watch: Watch = lambda text, share: None
) -> Iterator[Row]:
    """A row for each transport on which peers can stop in the middle of a message."""
    names = base.select(TRANSPORTS, transports)
    for number, name in enumerate(names):
        if missing(stage_class("transport", name)):
            yield Row(name, skipped="skipped: not installed")
            continue
        transport, alone, beside = build("transport", name), list[float](), list[float]()
        with _serving(name) as address, transport.connect(address, TOKEN) as channel:
            for turn in range(rounds):
                watch(name, (number + turn / rounds) / len(names))
                alone.append(_calls_a_second(channel))
                with ExitStack() as stack:
                    for _ in range(PEERS):
                        peer = stack.enter_context(closing(Peer(transport, address)))
                        peer.sock.sendall(peer.call(bytes(HALF_BYTES))[: HALF_BYTES // 2])
                    beside.append(_calls_a_second(channel))
        over = Spread.of(one / other for one, other in zip(beside, alone, strict=True))
        yield Row(name, Spread.of(alone), Spread.of(beside), over)


def _calls_a_second(channel: Any) -> float:
    count, frame, began = 0, bytes(CALL_BYTES), time.perf_counter()
    while time.perf_counter() - began < TURN_S:
        channel.call([frame]).result(10)
        count += 1
    return count / (time.perf_counter() - began)


class _Zmtp:
    """A peer that speaks ZeroMQ's protocol by hand."""

    def __init__(self, address: str) -> None:
        self._sock = socket.create_connection(Zmq().host_and_port(address), WAIT_S)
        self._sock.sendall(b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(52, b"\0"))
        self._exactly(64)
        ready = b"\x05READY\x0bSocket-Type" + struct.pack(">I", 6) + b"DEALER"
        self._sock.sendall(b"\x04" + bytes([len(ready)]) + ready)
        self._sock.sendall(b"\0\x01\xfd")
        self.close = self._sock.close

    def _exactly(self, nbytes: int) -> bytes:
        got = b""
        while len(got) < nbytes:
            some = self._sock.recv(nbytes - len(got))
            if not some:
                raise ConnectionError("The server closed the connection.")
            got += some
        return got

    def send(self, tag: int, frames: Frames) -> None:
        parts = [bytes([tag]), *map(bytes, frames)]
        for part in parts:
            more = part is not parts[-1]
            self._sock.sendall(struct.pack(">BQ", 2 + more, len(part)) + part)

    def receive(self, timeout: float, limit: int | None = None) -> tuple[int, list[bytes]]:
        parts: list[bytes] = []
        while True:
            flags = self._exactly(1)[0]
            size = struct.unpack(">Q", self._exactly(8))[0] if flags & 2 else self._exactly(1)[0]
            part = self._exactly(size)
            if flags & 4:
                continue
            parts.append(part)
            if not flags & 1:
                if parts[0] != b"\xff":
                    return parts[0][0], parts[1:]
                parts = []


class Peer:
    """A peer that has made a call, and whose ``sock`` then sends raw bytes."""

    def __init__(self, transport: Any, address: str) -> None:
        self._name, self.things = transport.name, ExitStack()
        if self._name == "http":
            channel = self.things.enter_context(transport.connect(address, TOKEN, WAIT_S))
            channel.call([b"a"]).result(WAIT_S)
            self.server = channel._wire._server
        else:
            wire: Any = transport.dial(address, WAIT_S) if self._name != "zmq" else cast(Any, _Zmtp(address))
            self.things.callback(wire.close)
            self.wire = wire
            answer_challenge(wire, TOKEN, address, WAIT_S)
            self.wire.send(CALL, [b"a"])
            self.wire.receive(WAIT_S)
        self.sock = self.things.enter_context(bare(transport, address)) if self._name == "http" else self.wire._sock

    def call(self, frame: bytes) -> bytes:
        """The bytes of a call of one frame."""
        if self._name == "zmq":
            return struct.pack(">BQB", 3, 1, CALL) + struct.pack(">BQ", 2, len(frame)) + frame
        body = b"".join(pieces(CALL, [frame]))
        if self._name == "shm":
            return struct.pack("<BBxxIIIQ", CALL, 0, 1, 0, 0, len(frame)).ljust(64, b"\0") + body[64:]
        if self._name == "http":
            session, number = self.server._session, next(self.server._numbers)
            head = f"Host: x\r\nMinips-Session: {session}\r\nMinips-Call: {number}\r\nContent-Length: {len(body)}"
            return b"POST / HTTP/1.1\r\n" + head.encode() + b"\r\n\r\n" + body
        return body

    def close(self) -> None:
        self.things.close()


def bare(transport: Any, address: str) -> socket.socket:
    """A connection that has not sent anything."""
    if transport.name != "shm":
        return socket.create_connection(Tcp().host_and_port(address.replace(transport.name, "tcp")), WAIT_S)
    sock = socket.socket(socket.AF_UNIX)
    sock.connect("\0" + transport.rest(address))
    return sock


@contextmanager
def _serving(name: str) -> Iterator[str]:
    ours, theirs = mp.get_context("spawn").Pipe()
    process = mp.get_context("spawn").Process(target=_serve, args=(theirs, name), daemon=True)
    process.start()
    try:
        yield ours.recv()
    finally:
        process.kill()
        process.join()


def _serve(pipe: Any, name: str) -> None:
    with build("transport", name).serve(lambda frames: frames, token=TOKEN) as endpoint:
        pipe.send(endpoint.address)
        time.sleep(3600)


def table(rows: Sequence[Row]) -> Table:
    """The rows for the terminal."""
    title = f"calls a second of a good client, beside {PEERS} peers that stall; medians [quartiles]"

    def cells(row: Row) -> list[str]:
        rates = [f"{spread.median:,.0f}" if spread else "–" for spread in (row.alone, row.beside)]
        return [row.contender, *rates, base.ratio(row.over_alone, quartiles=True)]

    return base.table(title, ["alone", "beside", "over alone"], rows, cells)


def chart(rows: Sequence[Row]) -> Chart:
    """Each transport's calls a second, alone and beside the peers."""
    alone = {row.contender: row.alone for row in rows if row.alone}
    beside = {row.contender: row.beside for row in rows if row.beside}
    return Chart({"alone": alone, f"beside {PEERS} that stall": beside}, "calls a second")
