"""Runs servers and workers as processes of this machine, which receive their roles over a pipe.

A child is spawned, never forked from the user's process, because it would inherit threads and locks in the middle of
their work. On Linux several children start as one process, which imports minips once and then, before it starts any
thread, forks into all of them. An import takes a third of a second of a core's time; a fork takes a hundredth.

A child imports this package and none of the user's modules: not the main module, which might train again, nor modules
that draw or display. Its role and data are sent by value (`minips.engines.shipping`). It leaves Ctrl-C to its parent,
and ends when its parent is gone. It never prints: the output of user code is sent to its supervisor.
"""

import atexit
import gc
import io
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from minips.core.membership import REJOIN_S
from minips.engines.base import Restarts
from minips.engines.local import LocalEngine
from minips.engines.shipping import ship, unship
from minips.engines.supervisor import FAREWELL_S, Child, ControlPipe, multiprocess, run_role
from minips.stage import option, register
from minips.stages.transports.framing import memory
from minips.words import message_of

FORKS = hasattr(os, "fork") and sys.platform != "darwin"
"""True if a process that has imported NumPy may fork; on macOS, the system's libraries do not survive a fork."""
KILL = getattr(signal, "SIGKILL", signal.SIGTERM)  # Windows has only one way to end a process
_starting = threading.Lock()
_ONE_THREAD = tuple(f"{name}_THREADS" for name in ("OPENBLAS_NUM", "OMP_NUM", "MKL_NUM", "BLIS_NUM", "VECLIB_MAXIMUM"))


Fork = Callable[[str, Any], int]
"""A function that forks the child with this name and pipe end. Returns 0 in the child, and its process id otherwise.

Raises OSError, or RuntimeError with a sentence, if it cannot.
"""


@register
@dataclass(frozen=True)
class Processes(LocalEngine):
    """Each server and worker in a process with one arithmetic thread, so that workers do not compete for cores.

    After its work, a process waits for its threads except daemons, calls the functions registered with ``atexit``,
    among them those of ``logging`` and ``multiprocessing``, and flushes its open files. Then it ends immediately,
    because Python would often need longer to delete all objects than a short run takes. So it calls no ``__del__`` and
    closes no file: a gzip file that is still open lacks its end.

    With ``restart``, a server or worker whose process dies is started again, up to so many times, and goes on where it
    was. The run is then kept in the folder of `train`'s ``checkpoint`` or else in a temporary one.
    """

    name = "processes"
    apart = "machine"
    faults: ClassVar[tuple[str, ...]] = ("kill",)
    restart: int = option(0, "how often each server and worker is started again after its process has died", minimum=0)
    rejoin_s: float = option(10.0, "with restart: how long the others wait for a dead worker", above=0, unit="s")

    @property
    def restarts(self) -> Restarts:
        return Restarts(self.restart, self.rejoin_s if self.restart else REJOIN_S)

    def start(self, *names: str) -> list[Child]:
        return start_children(names)


def start_children(names: Sequence[str], fork: Fork | None = None) -> list[Child]:
    """Start a child for each name, in a process made by ``fork`` or (None) in the usual way. If one cannot start, end
    all of them.
    """
    if multiprocess().current_process().daemon:
        raise RuntimeError(
            "Processes cannot run within a daemonic process, such as a Pool's worker. Use engine=Threads() there."
        )
    pipes = [multiprocess().Pipe() for _ in names]
    children: list[Child] = []
    try:
        forked = fork or (FORKS and len(names) > 1)
        server = _ForkServer(names, [there for _, there in pipes], fork) if forked else None
        for i, (who, (here, there)) in enumerate(zip(names, pipes, strict=True)):
            process = server.forks[i] if server else _spawn(_child, who, there)
            children.append(_ProcessChild(who, here, process))
    except BaseException:
        for child in children:
            child.end(FAREWELL_S)
        for here, _ in pipes:
            here.close()
        raise
    finally:
        for _, there in pipes:
            there.close()
    return children


class _ProcessChild(Child):
    def __init__(self, who: str, pipe: Any, process: Any) -> None:
        super().__init__(who, pipe)
        self._process = process

    def assign(self, role: Callable[..., Any], parts: dict[str, Any]) -> None:
        buffers: list[memoryview] = []
        assignment = ship({"role": role, **parts}, buffers if hasattr(os, "readv") else None)
        try:
            self.pipe.send_bytes(assignment)
            self.pipe.send([len(buffer) for buffer in buffers])
            for left in buffers:
                while left:
                    left = left[os.write(self.pipe.fileno(), left) :]
        except OSError:
            pass  # the child is gone; the supervisor notices when it reads
        except BaseException:  # Ctrl-C: otherwise the child would read the next word as part of its assignment
            self.pipe.close()
            raise

    def end(self, timeout: float) -> str:
        self.pipe.close()  # a child that has read half of a word then reads the end, and exits
        self._process.join(timeout)
        for number in (signal.SIGTERM, KILL):
            if self._process.exitcode is None:
                _signal(self._process.pid, number)
                self._process.join(max(timeout, FAREWELL_S))
        code = self._process.exitcode
        self.gone = True
        if code and code < 0:
            return f"its process was killed by {signal.Signals(-code).name}"
        return f"its exit code was {code}"


def _signal(pid: int | None, number: int) -> None:
    with suppress(OSError):
        if pid is not None:
            os.kill(pid, number)


def _spawn(target: Callable[..., None], name: str, *arguments: Any) -> Any:
    """Start and return a process. Raise RuntimeError, with a sentence, if none can be started."""
    context = multiprocess().get_context("spawn")
    python = os.fsdecode(multiprocess().spawn.get_executable())
    if not os.access(python, os.X_OK):
        raise RuntimeError(f"No process can be started: {python!r}, which should be Python, cannot be run.")
    process = context.Process(target=_run_program, args=(target, *arguments), name=f"minips-{name}", daemon=True)
    try:
        with _fresh_start():
            process.start()
    except BrokenPipeError:
        raise RuntimeError(f"The process {name} ended before its work was done: it did not even start.") from None
    return process


def _run_program(target: Callable[..., None], *arguments: Any) -> None:
    """Run the program of a child or of the fork server, and end its process as `Processes` says. A fork returns here,
    too. An exception ends the process in Python's usual way, with its traceback and exit code.
    """
    gc.freeze()  # so that `_flush_files` does not look at what was imported before
    target(*arguments)
    multiprocess().util._exit_function()  # first, as when a process ends in the usual way
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads
    atexit._run_exitfuncs()
    _flush_files()
    os._exit(0)


def _flush_files() -> None:
    """Flush the standard streams, and the files that the program has opened and not closed."""
    buffered = io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom
    # isinstance would ask an object for its class, but a weak reference to a dead object does not know it.
    files = [each for each in gc.get_objects() if issubclass(type(each), buffered)]
    for file in (*files, sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        with suppress(Exception):  # the stream is None or closed, or its disk is full
            file.flush()


class _ForkServer:
    """A process that forks once for each child and, as the parent of all, reports how each one ended."""

    def __init__(self, names: Sequence[str], pipes: list[Any], fork: Fork | None) -> None:
        self._report, there = multiprocess().Pipe(duplex=False)
        try:
            self._process = _spawn(_serve_forks, "forkserver", there, names, pipes, fork)
        except BaseException:
            self._report.close()
            raise
        finally:
            there.close()
        self.forks = [_Fork(self) for _ in names]

    def receive(self, timeout: float) -> None:
        """Wait up to ``timeout`` seconds for news from the fork server: a child's process id, or how it ended."""
        try:
            if self._report.poll(timeout):
                index, word, value = self._report.recv()
                setattr(self.forks[index], word, value)
        except (EOFError, OSError):  # the fork server could not fork, or was killed
            self.close()

    def close(self) -> None:
        """Wait for the fork server's end, and end the children that it leaves behind."""
        if self._report.closed:
            return
        self._report.close()
        self._process.join(FAREWELL_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join(FAREWELL_S)
        for fork in self.forks:
            if fork.exitcode is None:
                _signal(fork.pid, KILL)
                fork.exitcode = self._process.exitcode
        with suppress(ValueError):  # if not even that ended it
            self._process.close()


class _Fork:
    """A process created by the fork server. It has the part of multiprocess's interface that `_ProcessChild` uses."""

    def __init__(self, server: _ForkServer) -> None:
        self._server = server
        self.pid: int | None = None
        self.exitcode: int | None = None

    def join(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while self.exitcode is None and (left := deadline - time.monotonic()) > 0:
            self._server.receive(left)
        if all(fork.exitcode is not None for fork in self._server.forks):
            self._server.close()


def _serve_forks(report: Any, names: Sequence[str], pipes: list[Any], fork: Fork | None = None) -> None:
    """Run the fork server; its children continue with `_child`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    indices: dict[int, int] = {}
    for index, (name, pipe) in enumerate(zip(names, pipes, strict=True)):
        try:
            pid = fork(name, pipe) if fork else os.fork()
        except (OSError, RuntimeError) as error:
            kind = "" if isinstance(error, RuntimeError) else f"{type(error).__name__}: "
            ControlPipe(pipe).send("failed", (kind + message_of(error), ""))
            continue
        if pid == 0:
            for other in (report, *pipes):
                if other is not pipe:
                    other.close()
            multiprocess().current_process().name = f"minips-{name}"
            np.random.seed()  # so that user code draws different numbers in each child
            _child(pipe)
            return
        indices[pid] = index
    for pipe in pipes:
        pipe.close()
    with suppress(OSError):  # the parent is gone, so the children end without being told
        for pid, index in indices.items():
            report.send((index, "pid", pid))
        for _ in indices:
            pid, status = os.wait()
            report.send((indices[pid], "exitcode", os.waitstatus_to_exitcode(status)))


@contextmanager
def _fresh_start() -> Iterator[None]:
    """Prepare the start of children: one arithmetic thread, no main module, Ctrl-C held back."""
    from multiprocess import resource_tracker, spawn

    with _starting:
        before = {name: os.environ[name] for name in _ONE_THREAD if name in os.environ}
        prepare = spawn.get_preparation_data

        def prepare_without_main(name: str) -> dict[str, Any]:
            # A child that imports the main module would run a script without a __main__ guard again, and start later.
            try:
                data = prepare(name)
            except FileNotFoundError:
                raise OSError(
                    "The working directory has been deleted, and new processes start in it. Change to another one "
                    "with os.chdir, or use engine=Threads()."
                ) from None
            return {key: value for key, value in data.items() if not key.startswith("init_main")}

        os.environ.update(dict.fromkeys(_ONE_THREAD, "1"))
        spawn.get_preparation_data = prepare_without_main
        resource_tracker.ensure_running()  # if it started later, it would let Ctrl-C reach the first child
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}) if hasattr(signal, "pthread_sigmask") else None
        try:
            yield
        finally:
            if mask is not None:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            spawn.get_preparation_data = prepare
            for name in _ONE_THREAD:
                del os.environ[name]
            os.environ.update(before)


def _child(pipe: Any) -> None:
    """Run a child process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(OSError):  # only on Linux: the name of up to 15 letters that ps and top show
        Path("/proc/self/comm").write_text(multiprocess().current_process().name.replace(" ", ""))
    control = ControlPipe(pipe)
    try:
        assignment = pipe.recv_bytes()
        buffers = [_read(pipe, nbytes) for nbytes in pipe.recv()]
    except (EOFError, OSError):
        return
    run_assignment(control, assignment, buffers)


def run_assignment(
    control: ControlPipe,
    assignment: bytes,
    buffers: Iterable[memoryview] = (),
    prepare: Callable[[dict[str, Any]], dict[str, Any]] = lambda parts: parts,
) -> None:
    """Run an ``assignment``'s role with its arguments, which ``prepare`` may change; output goes to ``control``."""
    sys.stdout = sys.stderr = Forward(control)
    try:
        parts = prepare(unship(assignment, buffers))
        role = parts.pop("role")
    except Exception as error:
        text = f"{type(error).__name__}: {message_of(error)}."
        control.send("failed", (f"{text} The problem or a stage could not be rebuilt in the new process", ""))
        return
    run_role(role, control, parts)


def _read(pipe: Any, nbytes: int) -> memoryview:
    """Read this many bytes from the pipe directly into memory for an array."""
    block = left = memory(nbytes)
    while left:
        count = os.readv(pipe.fileno(), [left])
        if not count:
            raise EOFError
        left = left[count:]
    return block


class Forward(io.TextIOBase):
    """A text stream that sends whole lines to the supervisor."""

    def __init__(self, control: ControlPipe) -> None:
        self._control, self._left = control, ""

    def write(self, text: str) -> int:
        *lines, self._left = (self._left + text).split("\n")
        for line in lines:
            self._control.send("log", line)
        return len(text)

    def flush(self) -> None:
        if self._left:
            self.write("\n")
