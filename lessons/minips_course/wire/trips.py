"""Times packets that really travel, through a local socket."""

import socket
import struct
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import minips as ps
from minips.stage import Array

LIMIT_S = 20.0
"""The most seconds that one trip may take."""


def microseconds(serializer: ps.Serializer, packets: Sequence[ps.Packet], repeat: int = 5) -> Array:
    """Return the time to write each packet (row), send it through a local socket into other memory, and read it there.
    The packets take turns; the first turn does not count.
    """
    here, there = socket.socketpair()
    with here, there, ThreadPoolExecutor(1) as receiver:
        for end in (here, there):
            end.settimeout(LIMIT_S)
        turns = []
        for _ in range(repeat + 1):
            turns.append([_trip(serializer, packet, here, there, receiver) for packet in packets])
    return 1e6 * np.array(turns[1:]).T


def _trip(
    serializer: ps.Serializer,
    packet: ps.Packet,
    here: socket.socket,
    there: socket.socket,
    receiver: ThreadPoolExecutor,
) -> float:
    began = time.perf_counter()
    arrived = receiver.submit(_receive, serializer, there)
    frames = [memoryview(frame).cast("B") for frame in serializer.dumps(packet)]
    here.sendall(struct.pack(f"<I{len(frames)}Q", len(frames), *map(len, frames)))
    for frame in frames:
        here.sendall(frame)
    arrived.result(LIMIT_S)
    return time.perf_counter() - began


def _receive(serializer: ps.Serializer, there: socket.socket) -> ps.Packet:
    (count,) = struct.unpack("<I", _read(there, 4))
    return serializer.loads([_read(there, size) for size in struct.unpack(f"<{count}Q", _read(there, 8 * count))])


def _read(there: socket.socket, size: int) -> memoryview:
    buffer = memoryview(bytearray(size))
    got = 0
    while got < size:
        if not (more := there.recv_into(buffer[got:])):
            raise ConnectionError(f"The stream ended after {got} of {size} bytes.")
        got += more
    return buffer
