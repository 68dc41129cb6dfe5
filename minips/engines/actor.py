"""A server or worker on a Ray cluster: an actor that runs a role in a thread and relays the words on its pipe.

Ray creates the actor in its own process on a node, where minips must be installed.
"""

import gc
import json
import os
import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from minips.arithmetic import one_blas_thread
from minips.engines.processes import run_assignment
from minips.engines.supervisor import ControlPipe, multiprocess
from minips.files import write
from minips.stages.transports.certificates import files, issue_certificate


class ActorInfo(NamedTuple):
    """An actor's host and process, and its server's public certificate (empty without TLS)."""

    host: str
    pid: int
    certificate: str


def _certificate(host: str, file: str) -> tuple[str, str]:
    """A certificate and its key: those in a file, which is written if it is missing, or fresh ones."""
    if file and Path(file).exists():
        certificate, key = json.loads(Path(file).read_text())
        return certificate, key
    fresh = issue_certificate(host)
    if file:
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        write(file, json.dumps(fresh), 0o600)
    return fresh


class Actor:
    """The methods that the supervisor calls through Ray. The certificate's private key stays in this process or, for
    the process that takes its place, in ``file``.
    """

    def __init__(self, serves: bool, file: str = "") -> None:
        import ray

        self._host = ray.util.get_node_ip_address()
        self._certificate, self._key = _certificate(self._host, file) if serves else ("", "")
        self._here, self._there = multiprocess().Pipe()

    def info(self) -> ActorInfo:
        """Return this actor's host, process id and certificate."""
        return ActorInfo(self._host, os.getpid(), self._certificate)

    def now(self) -> float:
        """Return the time on this machine's clock."""
        return time.monotonic()

    def begin(self, assignment: bytes, authorities: str, offset_s: float) -> None:
        """Start the assignment's role in a thread. If ``authorities`` (the certificates of all servers) is not empty,
        the role uses TLS. The actor adds ``offset_s`` to the times in the role's words.
        """
        arguments = (assignment, authorities, offset_s)
        threading.Thread(target=self._run_role, args=arguments, name="minips-role", daemon=True).start()

    def send(self, word: str, value: Any) -> None:
        """Send a word to the role, unless it has ended."""
        with suppress(OSError):
            self._here.send((word, value))

    def receive(self, timeout: float) -> list[bytes] | None:
        """Return the role's words, waiting up to ``timeout`` seconds for the first; None once the role has ended."""
        words: list[bytes] = []
        try:
            while self._here.poll(0 if words else timeout):
                words.append(self._here.recv_bytes())
        except (EOFError, OSError):  # OSError if the role ended before reading a word
            return words or None
        return words

    def _run_role(self, assignment: bytes, authorities: str, offset_s: float) -> None:
        with self._there, ExitStack() as stack:
            control = _ShiftedPipe(self._there, offset_s)
            gc.freeze()  # otherwise each collection would scan everything that Ray imported

            def prepare(parts: dict[str, Any]) -> dict[str, Any]:
                if not authorities:
                    return parts
                mine, others = stack.enter_context(files(self._certificate + self._key, authorities))
                config = parts["config"]
                fields = {"certificate": mine if self._key else "", "key": "", "authority": others}
                return {**parts, "config": replace(config, transport=replace(config.transport, **fields))}

            stack.enter_context(one_blas_thread)
            run_assignment(control, assignment, prepare=prepare)


class _ShiftedPipe(ControlPipe):
    """Converts the times in a role's words from this machine's clock to the supervisor's."""

    def __init__(self, pipe: Any, offset_s: float) -> None:
        super().__init__(pipe)
        self._offset_s = offset_s

    def send(self, word: str, value: Any = None) -> None:
        super().send(word, shift_times(word, value, self._offset_s) if self._offset_s else value)


def shift_times(word: str, value: Any, seconds: float) -> Any:
    """Return the value of a role's word with ``seconds`` added to each of its times.

    >>> shift_times("progress", (8, 40, 2, [(1.0, 0, 2.3)]), 0.5)
    (8, 40, 2, [(1.5, 0, 2.3)])
    """
    if word == "progress":
        *counts, rows = value
        return *counts, [(at + seconds, *rest) for at, *rest in rows]
    if word != "result" or value is None:
        return value
    moved = {name: value[name] + seconds for name in ("changed_at", "began_at") if name in value}
    rows_of = {
        name: [(at + seconds, *rest) for at, *rest in value[name]] for name in ("losses", "events") if name in value
    }
    return {**value, **moved, **rows_of, "trace": value["trace"].since(-seconds)}
