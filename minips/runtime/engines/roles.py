"""What a member of the crew does: serve, or work. The same code runs in a thread and in a process.

A role talks to the conductor over one pipe, in pairs of a word and a value:

    role → conductor   ready (a server: its address), progress, finished, result, failed, log
    conductor → role   meet (the servers' addresses), go, stop
"""

import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from minips.problems import Problem
from minips.runtime.client import connect
from minips.runtime.config import Config
from minips.runtime.server import Server
from minips.runtime.shipping import enroll
from minips.runtime.worker import work
from minips.stage import Tensors

TICK_S = 0.01
NEWS_TICKS = 10
"""How often a server looks whether it is done, and after how many looks it tells how far it is."""


class Line:
    """A role's end of its pipe, for several threads. What nobody hears any more is not said."""

    def __init__(self, pipe: Any) -> None:
        self._pipe, self._lock = pipe, threading.Lock()

    def say(self, word: str, value: Any = None) -> None:
        """Tell the conductor."""
        with self._lock, suppress(OSError):
            self._pipe.send((word, value))

    def hear(self, timeout: float) -> tuple[str, Any]:
        """The conductor's next word and value: silence after ``timeout`` seconds, stop where the conductor is gone."""
        try:
            return self._pipe.recv() if self._pipe.poll(timeout) else ("silence", None)
        except (EOFError, OSError):
            return "stop", None

    def wait(self) -> tuple[str, Any]:
        """The conductor's next word and value, however long it takes; a conductor that is gone says stop."""
        while (heard := self.hear(1.0))[0] == "silence":
            pass
        return heard


def play(role: Callable[..., Any], line: Line, parts: dict[str, Any]) -> None:
    """Run a role; what it returns and what it raises become words to the conductor."""
    try:
        enroll(parts)
        report = role(line, **parts)
        print(end="", flush=True)  # a last line without an end, from user code
        line.say("result", report)
    except Exception as error:
        line.say("failed", (f"{type(error).__name__}: {error}", traceback.format_exc()))


def serve(line: Line, *, config: Config, params: Tensors, index: int, token: str) -> dict[str, Any]:
    """One server, from its start until the conductor says stop; its report."""
    told, ticks, finished = 0, 0, False
    with Server(params, config, index=index, updates=config.workers * config.steps).serve(token=token) as server:
        line.say("ready", server.address)
        while line.hear(TICK_S)[0] != "stop":
            ticks += 1
            over = server.shard.done and not finished
            if over or ticks % NEWS_TICKS == 0:
                rows = server.losses[told:]
                told += len(rows)
                line.say("progress", (server.shard.applied, rows))
            if over:
                finished = True
                line.say("finished")
    return server.report()


def labour(line: Line, *, config: Config, problem: Problem, worker: int, token: str) -> dict[str, Any] | None:
    """One worker, from its first connection until the run is done or the conductor says stop; its report."""
    word, addresses = line.wait()
    if word != "meet":
        return None
    stop, over = threading.Event(), threading.Event()

    def listen() -> None:
        while not over.is_set():
            if line.hear(0.05)[0] == "stop":
                stop.set()
                return

    with connect(addresses, config, worker=worker, token=token) as client:
        line.say("ready")
        if line.wait()[0] == "go":
            listener = threading.Thread(target=listen, name=f"minips-listen-{worker}", daemon=True)
            listener.start()
            try:
                work(problem, config, client, stop)
            finally:
                over.set()
                listener.join()
    return client.report()
