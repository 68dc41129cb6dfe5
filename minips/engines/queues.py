"""The queues of a network of hosts over time, as the kernel counts their bytes and the packets that they drop."""

import ctypes
import os
import socket
import struct
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self

Rows = dict[str, list[tuple[float, int, int]]]
"""Maps a queue to rows of (seconds, bytes that wait, packets dropped so far)."""
_HEADER, _QDISC, _ATTRIBUTE, _QUEUE = (struct.Struct(form) for form in ("=IHHII", "=BBHiIII", "=HH", "=III"))
_GET, _NEW, _DONE, _DUMP, _ROOT = 38, 36, 3, 0x301, 0xFFFFFFFF
_STATS, _STATS_QUEUE, _NESTED = 7, 3, 0x3FFF
READ_S = 5.0
"""The longest wait for an answer of the kernel, in seconds."""
NEWNET = 0x40000000
"""Linux's flag of a network namespace."""
LOOPBACK = 1
"""The number of each namespace's first interface."""


class QueueCounters:
    """Reads the queues of the network interfaces in this thread's namespace, by rtnetlink (RFC 3549)."""

    def __init__(self) -> None:
        self._kernel = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        self._kernel.settimeout(READ_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._kernel.close()

    def read(self) -> Iterator[tuple[int, int, int]]:
        """Yield each interface's number, the bytes in its queue, and the packets that it has dropped."""
        ask = _QDISC.pack(0, 0, 0, 0, 0, 0, 0)
        self._kernel.send(_HEADER.pack(_HEADER.size + len(ask), _GET, _DUMP, 0, 0) + ask)
        kind = _NEW
        while kind == _NEW:
            heard, at = self._kernel.recv(2**16), 0
            while kind == _NEW and at < len(heard):
                size, kind, *_ = _HEADER.unpack_from(heard, at)
                body = heard[at + _HEADER.size : at + size]
                at += size + -size % 4
                if kind == _NEW:
                    *_, index, _, parent, _ = _QDISC.unpack_from(body)
                    queue = _attribute(_attribute(body[_QDISC.size :], _STATS), _STATS_QUEUE)
                    if parent == _ROOT and queue:
                        _, waiting, dropped = _QUEUE.unpack_from(queue)
                        yield index, waiting, dropped
        if kind != _DONE:
            raise OSError("The kernel did not tell about its queues.")


def _attribute(held: bytes, wanted: int) -> bytes:
    """Return the attribute's value, empty if it is missing."""
    at = 0
    while at < len(held):
        size, kind = _ATTRIBUTE.unpack_from(held, at)
        if kind & _NESTED == wanted:
            return held[at + _ATTRIBUTE.size : at + size]
        at += max(size + -size % 4, _ATTRIBUTE.size)
    return b""


def queues_of(process: int) -> QueueCounters | None:
    """Open the queues of a process that has a network of its own, which stay open when it ends. None if it has none
    yet, or has ended. Enters its namespace with this thread alone, and leaves it again.
    """
    with suppress(OSError), Path("/proc/thread-self/ns/net").open() as own, _network(process).open() as other:
        if not os.path.sameopenfile(own.fileno(), other.fileno()):
            _enter(other.fileno())
            try:
                return QueueCounters()
            finally:
                _enter(own.fileno())
    return None


def _network(process: int) -> Path:
    return Path("/proc", str(process), "ns/net")


def _enter(namespace: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, NEWNET):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "setns")


def watch(pipe: Any, every_s: float, ends: Mapping[str, str], hosts: Mapping[int, str]) -> None:
    """Read queues until the pipe has a word or ends. Then send a row for each reading that differs from the one before,
    with its time on the monotonic clock. ``ends`` maps interfaces of this namespace to the names of their queues, and
    ``hosts`` maps each process with a network of its own to the queue of its interface.
    """
    rows, missing, named = Rows(), dict(hosts), dict[int, str]()
    with pipe, ExitStack() as stack:
        looks = [(stack.enter_context(QueueCounters()), "")]
        while not pipe.poll(every_s):
            for process in [*missing]:
                if queues := queues_of(process):
                    looks.append((stack.enter_context(queues), missing.pop(process)))
            at = time.monotonic()
            for queues, host in looks:
                for number, waiting, dropped in queues.read():
                    if not host and number not in named:
                        named = dict(socket.if_nameindex())
                    end = host or ends.get(named.get(number, ""), "")
                    changed = end not in rows or rows[end][-1][1:] != (waiting, dropped)
                    if end and number != LOOPBACK and changed:
                        rows.setdefault(end, []).append((at, waiting, dropped))
        with suppress(EOFError, OSError):  # nobody wants them: the run has failed
            pipe.recv()
            pipe.send(rows)
