"""Servers and workers as processes of this machine, started afresh (spawn) and briefed over a pipe.

A child imports this package and nothing of the user's: not the main module, which might train again, nor anything that
draws or shows. What it needs comes by value (`minips.runtime.shipping`). It ignores Ctrl-C, which is the parent's to
hear; it never prints: what user code prints travels to the run's events; and it leaves by itself when its parent is
gone.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from minips.runtime.engines.crew import LocalEngine, Member, multiprocess
from minips.runtime.engines.roles import Line, play
from minips.runtime.shipping import ship, unship
from minips.stage import reason, register
from minips.stages.transports.network import memory

_starting = threading.Lock()
_ONE_THREAD = tuple(f"{name}_THREADS" for name in ("OPENBLAS_NUM", "OMP_NUM", "MKL_NUM", "BLIS_NUM", "VECLIB_MAXIMUM"))


@register
@dataclass(frozen=True)
class Processes(LocalEngine):
    """Everybody in a process of their own, each with one thread of arithmetic, so that workers do not fight for the
    cores.
    """

    name = "processes"

    def start(self, who: str) -> Member:
        return _Process(who)


class _Process(Member):
    def __init__(self, who: str) -> None:
        if multiprocess().current_process().daemon:
            raise RuntimeError(
                "Processes cannot run within a daemonic process, such as a worker of a Pool or of another run: it may "
                "start none. Use engine=Threads() there."
            )
        context = multiprocess().get_context("spawn")
        here, there = context.Pipe()
        super().__init__(who, here)
        self._process = context.Process(target=_child, args=(there,), name=f"minips-{who}", daemon=True)
        try:
            with _fresh_start():
                self._process.start()
        finally:
            there.close()

    def brief(self, role: Callable[..., Any], parts: dict[str, Any]) -> None:
        apart: list[memoryview] = []
        briefing = ship({"role": role, **parts}, apart if hasattr(os, "readv") else None)
        with suppress(OSError):  # where it is gone already, whoever listens for its first word will hear that
            self.pipe.send_bytes(briefing)
            self.pipe.send([len(one) for one in apart])
            for one in apart:
                while one:
                    one = one[os.write(self.pipe.fileno(), one) :]

    def end(self, timeout: float) -> str:
        self.pipe.close()  # a child that was told only half of something hears no more of it, and leaves
        self._process.join(timeout)
        for force in (self._process.terminate, self._process.kill):
            if self._process.is_alive():
                force()
                self._process.join(timeout)
        code = self._process.exitcode
        self.gone = True
        return (
            f"its process was killed by {signal.Signals(-code).name}"
            if code and code < 0
            else f"its exit code was {code}"
        )


@contextmanager
def _fresh_start() -> Iterator[None]:
    """The surroundings in which a child is started: one arithmetic thread, no main module, Ctrl-C held back."""
    from multiprocess import resource_tracker, spawn

    with _starting:
        spare = {name: os.environ.get(name) for name in _ONE_THREAD}
        prepare = spawn.get_preparation_data

        def prepare_without_main(name: str) -> dict[str, Any]:
            # A child that imports the main module would run a script without a __main__ guard again, and takes longer
            # to start.
            try:
                told = prepare(name)
            except FileNotFoundError:
                raise OSError(
                    "The working directory has been deleted, and new processes start in it. Go to another one with "
                    "os.chdir, or use engine=Threads()."
                ) from None
            return {key: value for key, value in told.items() if not key.startswith("init_main")}

        os.environ.update(dict.fromkeys(_ONE_THREAD, "1"))
        spawn.get_preparation_data = prepare_without_main
        resource_tracker.ensure_running()  # its start would let Ctrl-C through to the first child
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}) if sys.platform != "win32" else None
        try:
            yield
        finally:
            if mask is not None:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            spawn.get_preparation_data = prepare
            for name, value in spare.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


def _child(pipe: Any) -> None:
    """What a child process runs."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    line = Line(pipe)
    sys.stdout = sys.stderr = _Forward(line)
    try:
        briefing = pipe.recv_bytes()
        apart = [_read(pipe, nbytes) for nbytes in pipe.recv()]
    except (EOFError, OSError):
        return
    try:
        parts = unship(briefing, apart)
        role = parts.pop("role")
    except Exception as error:
        text = f"{type(error).__name__}: {reason(error)}."
        line.say("failed", (f"{text} The problem or a stage could not be rebuilt in the new process", ""))
        return
    play(role, line, parts)


def _read(pipe: Any, nbytes: int) -> memoryview:
    """So many bytes off the pipe, straight into memory that an array can live in."""
    block = left = memory(nbytes)
    while left:
        got = os.readv(pipe.fileno(), [left])
        if not got:
            raise EOFError
        left = left[got:]
    return block


class _Forward:
    """A text stream that sends whole lines to the conductor."""

    def __init__(self, line: Line) -> None:
        self._line, self._left = line, ""

    def write(self, text: str) -> int:
        *lines, self._left = (self._left + text).split("\n")
        for each in lines:
            self._line.say("log", each)
        return len(text)

    def flush(self) -> None:
        if self._left:
            self.write("\n")

    def isatty(self) -> bool:
        return False
