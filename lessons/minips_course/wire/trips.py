"""Times packets that really travel, through a local socket."""

import socket
import struct
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import minips as ps
from minips.stage import Array, Buffer

LIMIT_S = 20.0
"""The most seconds that one trip may take."""


def installed() -> dict[str, ps.Serializer]:
    """Return the serializers by name. Prints, in a line for each, what to install for those that need a library."""
    found: dict[str, ps.Serializer] = {}
    for name in ps.names("serializer"):
        try:
            found[name] = ps.build("serializer", name)
        except ModuleNotFoundError as error:
            print(error)
    return found


def are_one_memory(frame: Buffer, array: Array) -> bool:
    """Return whether a frame is an array's own memory."""
    return np.shares_memory(np.frombuffer(frame, np.uint8), array)


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


def times_as_long(slow: Array, fast: Array) -> dict[str, float]:
    """Return the median of the ratios of two formats' trips as ``times``, and the quartiles ``low`` and ``high``, with
    one digit each: more would be chance.
    """
    ratios = np.quantile(slow / fast, [0.25, 0.5, 0.75])
    return dict(zip(("low", "times", "high"), (float(f"{ratio:.1g}") for ratio in ratios), strict=True))


def table(added: Mapping[str, int], times: Mapping[str, Array]) -> str:
    """Return a row for each format: the bytes that it adds, and its time for each of two arrays over MsgPack's."""
    rows = [f"{'format':12}{'bytes added':>12}{'small array':>14}{'large array':>14}"]
    for name, spent in times.items():
        small, large = np.median(spent / times["msgpack"], axis=1)
        rows.append(f"{name:12}{added[name]:12,}{small:14,.1f}{large:14,.1f}")
    return "\n".join(rows)


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
