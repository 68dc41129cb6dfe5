"""The process of one server or worker on a Ray cluster: a role in a thread, and a pipe to it that Ray's calls feed.

Ray makes the actor on the node that it was placed on; minips has to be installed there.
"""

import gc
import os
import sys
import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Any, NamedTuple

from minips.arithmetic import one_blas_thread
from minips.engines.processes import Forward, carry_out
from minips.engines.supervisor import ControlPipe, multiprocess
from minips.stages.transports.certificates import files, issued


class Introduction(NamedTuple):
    """The place of an actor, and the certificate of its server: public, empty without TLS."""

    host: str
    pid: int
    certificate: str


class Actor:
    """Its methods are what the supervisor's side calls; the key of its certificate stays here."""

    def __init__(self, serves: bool) -> None:
        import ray

        self._host = ray.util.get_node_ip_address()
        self._certificate, self._key = issued(self._host) if serves else ("", "")
        self._here, self._there = multiprocess().Pipe()

    def introduce(self) -> Introduction:
        """The place of this actor."""
        return Introduction(self._host, os.getpid(), self._certificate)

    def now(self) -> float:
        """This machine's clock."""
        return time.monotonic()

    def begin(self, briefing: bytes, authorities: str, ahead_s: float) -> None:
        """Carry out the role of the briefing. With ``authorities``, the certificates of all who serve, it speaks TLS;
        its times are told by a clock that is so many seconds ahead.
        """
        arguments = (briefing, authorities, ahead_s)
        threading.Thread(target=self._carry_out, args=arguments, name="minips-role", daemon=True).start()

    def say(self, word: str, value: Any) -> None:
        """Tell the role, if it has not ended."""
        with suppress(OSError):
            self._here.send((word, value))

    def hear(self, timeout: float) -> list[bytes] | None:
        """The role's words by now, or the first one within ``timeout`` seconds; None after its end."""
        heard: list[bytes] = []
        try:
            while self._here.poll(0 if heard else timeout):
                heard.append(self._here.recv_bytes())
        except (EOFError, OSError):  # the latter where it left a word unheard
            return heard or None
        return heard

    def _carry_out(self, briefing: bytes, authorities: str, ahead_s: float) -> None:
        with self._there, ExitStack() as stack:
            line = _Line(self._there, ahead_s)
            sys.stdout = sys.stderr = Forward(line)
            gc.freeze()  # of all that Ray has imported there is nothing to be collected, and much to be looked through

            def prepare(parts: dict[str, Any]) -> dict[str, Any]:
                if not authorities:
                    return parts
                mine, others = stack.enter_context(files(self._certificate + self._key, authorities))
                config = parts["config"]
                papers = {"certificate": mine if self._key else "", "key": "", "authority": others}
                return {**parts, "config": replace(config, transport=replace(config.transport, **papers))}

            stack.enter_context(one_blas_thread)
            carry_out(line, briefing, prepare=prepare)


class _Line(ControlPipe):
    """Tells the times in a role's words by the supervisor's clock."""

    def __init__(self, pipe: Any, ahead_s: float) -> None:
        super().__init__(pipe)
        self._ahead_s = ahead_s

    def say(self, word: str, value: Any = None) -> None:
        super().say(word, later(word, value, self._ahead_s) if self._ahead_s else value)


def later(word: str, value: Any, seconds: float) -> Any:
    """The value of a role's word with all of its times so much later.

    >>> later("progress", (8, [(1.0, 0, 2.3)]), 0.5)
    (8, [(1.5, 0, 2.3)])
    """
    if word == "progress":
        applied, rows = value
        return applied, [(at + seconds, *rest) for at, *rest in rows]
    if word != "result" or value is None:
        return value
    moved = {name: value[name] + seconds for name in ("changed_at", "began_at") if name in value}
    rows_of = {
        name: [(at + seconds, *rest) for at, *rest in value[name]] for name in ("losses", "events") if name in value
    }
    return {**value, **moved, **rows_of, "trace": value["trace"].since(-seconds)}
