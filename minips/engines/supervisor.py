"""Supervises children for runs, calibrations and benches: starts them, reads their words and ends them.

A child is a process or a thread that runs a role: a function of a control pipe. Both sides send pairs of a word and a
value. Every child sends ``result`` with its role's result, or ``failed`` with its exception and the traceback; ``log``
carries a line for standard error. Every child receives ``stop``. Other words belong to the role.
"""

import selectors
import signal
import sys
import threading
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any, Self

from minips.engines.shipping import register_shipped_stages
from minips.stages.transports.patience import Limit
from minips.words import message_of

FAREWELL_S = 5.0
"""The seconds that a child may take to leave after ``stop``."""
TICK_S = 0.1
"""The seconds between two calls of ``check`` while the supervisor waits."""


class ControlPipe:
    """A child's end of its pipe, safe for several threads. Words sent to a closed end are dropped."""

    def __init__(self, pipe: Any) -> None:
        self._pipe, self._lock, self.stopped = pipe, threading.Lock(), False

    def send(self, word: str, value: Any = None) -> None:
        """Send a word and a value to the supervisor."""
        with self._lock, suppress(OSError):
            self._pipe.send((word, value))

    def receive(self, timeout: float) -> tuple[str, Any]:
        """Return the supervisor's next word and value: ``silence`` after ``timeout`` seconds, ``stop`` if gone."""
        word, value = "stop", None
        with suppress(EOFError, OSError):
            if not self.stopped:
                word, value = self._pipe.recv() if self._pipe.poll(timeout) else ("silence", None)
        self.stopped = word == "stop"
        return word, value

    def wait(self, *wanted: str) -> tuple[str, Any]:
        """Wait without a time limit until one of the ``wanted`` words or ``stop`` arrives; drop other words."""
        while (received := self.receive(1.0))[0] not in ("stop", *wanted):
            pass
        return received

    def failed(self, error: BaseException) -> None:
        """Send a role's exception and its traceback."""
        print(end="", flush=True)  # flushes user code's last line, which may lack an end
        self.send("failed", (f"{type(error).__name__}: {message_of(error)}", traceback.format_exc()))


def run_role(role: Callable[..., Any], control: ControlPipe, parts: dict[str, Any]) -> None:
    """Run a role, and send its result or exception to the supervisor. SystemExit ends the child."""
    try:
        register_shipped_stages(parts)
        report = role(control, **parts)
        print(end="", flush=True)  # flushes user code's last line, which may lack an end
        control.send("result", report)
    except SystemExit:
        raise
    except BaseException as error:
        control.failed(error)


class Child(ABC):
    """A started process or thread, with the supervisor's end of its pipe.

    ``received`` maps each word to the value that the child sent, until it is taken out. ``address`` is the address at
    which the child serves, if it does; None for a fresh local address.
    """

    def __init__(self, who: str, pipe: Any, address: str | None = None) -> None:
        self.who, self.pipe, self.address = who, pipe, address
        self.received: dict[str, Any] = {}
        self.done = self.gone = False

    @abstractmethod
    def assign(self, role: Callable[..., Any], parts: dict[str, Any]) -> None:
        """Assign the child its role, and the role's arguments."""

    def send(self, word: str, value: Any = None) -> None:
        """Send a word and a value to the child. If the child is gone, the supervisor notices it at the pipe."""
        with suppress(OSError):
            self.pipe.send((word, value))

    def replace(self, fresh: "Child") -> None:
        """Let a ``fresh`` child take this one's place."""
        vars(self).update(vars(fresh))

    @abstractmethod
    def end(self, timeout: float) -> str:
        """Wait for the child's end, force it after ``timeout`` seconds, free its resources. Return how it ended."""


def send_all(children: Iterable[Child], word: str, value: Any = None) -> None:
    """Send the same word and value to several children."""
    for child in children:
        child.send(word, value)


Start = Callable[..., list[Child]]
"""The engine's function that starts a child for each name."""


class Supervisor:
    """Manages children, and makes sure that all of them have ended when the ``with`` block ends, even after an error.

    ``start`` is the ``start`` method of `Processes` or `Threads`. While the supervisor waits, it calls ``check``
    several times a second; an exception from ``check`` ends the wait.
    """

    def __init__(self, start: Start, check: Callable[[], None] = lambda: None) -> None:
        self._start, self._check = start, check
        self.children: list[Child] = []
        self.farewell_s = FAREWELL_S
        self._pipes: _Pipes | None = None

    def start(self, *names: str) -> list[Child]:
        """Start children that wait for their roles."""
        with ctrl_c_later():
            started = self._start(*names)
            self.children += started
        return started

    def start_again(self, child: Child) -> None:
        """Start a child in the place of this one, which has left."""
        with ctrl_c_later():
            child.replace(*self._start(child.who))
        if self._pipes:
            self._pipes.add(child)

    def receive(self, child: Child, wanted: str, limit: float, progress: Callable[[Any], None] = lambda _: None) -> Any:
        """Return the value of the child's word ``wanted``. Until then, call ``progress`` with progress values.

        RuntimeError if a child fails or leaves early, or after ``limit`` seconds without a word.
        """
        while self.wait(lambda: bool(child.received), limit):
            if "progress" in child.received:
                progress(child.received.pop("progress"))
            elif wanted in child.received:
                return child.received.pop(wanted)
            else:
                raise RuntimeError(f"{child.who} said {', '.join(child.received)} instead of {wanted}.")
        raise RuntimeError(f"{child.who} sent nothing for {limit:g} seconds. Is the machine overloaded?")

    def wait(self, until: Callable[[], bool], limit: float = float("inf")) -> bool:
        """Read the children's words until ``until()`` holds. Return False after a `Limit` of ``limit`` seconds."""
        left = Limit(limit)
        with closing(_Pipes(child for child in self.children if not child.gone)) as self._pipes:
            pipes = self._pipes
            while not until():
                self._check()
                for child in pipes.ready(min(left.tick, TICK_S)):
                    self._read(child)
                if left.over():
                    return until()
        return True

    def _read(self, child: Child) -> None:
        try:
            word, value = child.pipe.recv()
        except (EOFError, OSError):
            child.gone = True
            if self._pipes:
                self._pipes.drop(child)
            if not child.done:
                self.lost(child)
            return
        child.done |= word == "result"
        _show(child, word, value)
        if word == "failed":
            self.failed(child, *value)
        else:
            self.handle(child, word, value)

    def handle(self, child: Child, word: str, value: Any) -> None:
        """Store a child's word and value."""
        if word != "log":
            child.received[word] = value

    def failed(self, child: Child, text: str, details: str) -> None:
        """Raise the error of a child's role, with its traceback as a note."""
        error = RuntimeError(f"{child.who} failed: {text}")
        error.add_note(details)
        raise error

    def lost(self, child: Child) -> None:
        """Raise an error for a child that left before its role had ended."""
        raise RuntimeError(f"{child.who} left before its work was done: {child.end(self.farewell_s)}.")

    def stop(self) -> None:
        """Ask all children to stop, without waiting; the ``with`` block waits at its end."""
        send_all(self.children, "stop")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        with ctrl_c_later():
            self.stop()
            deadline = time.monotonic() + self.farewell_s  # one deadline for all children
            for child in self.children:  # show their last lines, even if one of them failed
                with suppress(EOFError, OSError):
                    while child.pipe.poll() and time.monotonic() < deadline:
                        _show(child, *child.pipe.recv())
            for child in reversed(self.children):  # children that serve were started first
                child.end(max(deadline - time.monotonic(), 0.0))


class _Pipes:
    """The pipes of children, registered once for many waits, since many children send many words."""

    def __init__(self, children: Iterable[Child]) -> None:
        self._children = dict[int, Child]()
        self._selector = None if sys.platform == "win32" else selectors.DefaultSelector()
        for child in children:
            self.add(child)

    def add(self, child: Child) -> None:
        """Read a child's pipe from now on."""
        number = child.pipe.fileno()
        self._children[number] = child
        if self._selector:
            self._selector.register(number, selectors.EVENT_READ)

    def drop(self, child: Child) -> None:
        """Read a child's pipe no longer."""
        if self._selector:
            self._selector.unregister(child.pipe.fileno())

    def ready(self, timeout: float) -> Iterator[Child]:
        """Yield the children that have sent a word or are gone; none after ``timeout`` seconds."""
        if self._selector is None:
            present = {child.pipe: child for child in self._children.values() if not child.gone}
            yield from map(present.__getitem__, multiprocess().connection.wait(list(present), timeout))
            return
        for key, _ in self._selector.select(timeout):
            yield self._children[key.fd]

    def close(self) -> None:
        if self._selector:
            self._selector.close()


def _show(child: Child, word: str, value: Any) -> None:
    """Print a child's line to standard error."""
    if word == "log" and sys.stderr:
        with suppress(OSError, ValueError):  # if it is closed
            print(f"{child.who}: {value}", file=sys.stderr)


def multiprocess() -> Any:
    """Import and return the ``multiprocess`` library. RuntimeError if it does not work, as in a browser's Python."""
    try:
        import multiprocess.connection
        import multiprocess.resource_tracker  # since Python 3.13 the first import can work although this one fails
    except ImportError as error:
        raise RuntimeError(
            f"Servers and workers need the library multiprocess, and here it does not work: {error}. "
            "The engine Simulated() needs neither processes nor threads."
        ) from error
    return multiprocess


@contextmanager
def ctrl_c_later() -> Iterator[None]:
    """Hold back Ctrl-C and SIGTERM until the block has ended, so that no child is left half started."""
    signals: list[int] = []
    try:
        with handling(lambda number, _: signals.append(number), signal.SIGINT, signal.SIGTERM):
            yield
    finally:
        for number in signals:
            signal.raise_signal(number)


@contextmanager
def handling(handle: Callable[[int, Any], object] | None, *numbers: int) -> Iterator[None]:
    """Call ``handle`` (None: the previous handler) on these signals until the block ends; then restore the handlers.
    Does nothing outside the main thread, the only thread that Python interrupts.
    """
    main = threading.current_thread() is threading.main_thread()
    before = {number: handler for number in numbers if main and (handler := signal.getsignal(number)) is not None}
    for number, handler in before.items():
        signal.signal(number, handle or handler)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def interrupt_kept() -> Iterator[list[KeyboardInterrupt]]:
    """Keep the first KeyboardInterrupt from the handler of Ctrl-C or SIGTERM, so that the block can end in order. Raise
    a second one immediately.
    """
    before: dict[int, Any] = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number, handler in before.items():  # for a run within a run, the handler from before both runs
        before[number] = getattr(handler, "before", before)[number]
    kept: list[KeyboardInterrupt] = []

    def keep(number: int, frame: Any) -> None:
        try:
            before[number](number, frame)
        except KeyboardInterrupt as interrupt:
            if kept:
                raise
            kept.append(interrupt)

    keep.before = before  # type: ignore[attr-defined]
    with handling(keep, *(number for number, handler in before.items() if callable(handler))):
        yield kept
