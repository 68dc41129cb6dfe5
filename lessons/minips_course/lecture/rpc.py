"""Remote references in small: the names of ``torch.distributed.rpc`` that the lesson's programs use, without torch.

A call travels over a connection of its own: to the port of the process that is called goes a pickle of the function and
its arguments, and back comes a pickle of the result. pickle sends a function as its module and its name. The processes
find each other's ports in a folder, which all of them get from the program that starts them, with a key. This file
imports nothing but the standard library: it is copied beside each program.
"""

import itertools
import os
import pickle
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future as _Future
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

FOLDER, KEY = "MINIPS_LESSON_RPC", "MINIPS_LESSON_KEY"
"""The names of the environment's variables with the folder and the key."""
LIMIT_S = 60.0
"""The most seconds that a process waits for another one."""


class Future(_Future[Any]):
    """A result that comes later."""

    def wait(self) -> Any:
        """Wait for the result, and return it; an error at the other process is a RuntimeError here."""
        return self.result(LIMIT_S)

    value = wait


def async_execution(function: Any) -> Any:
    """Mark a function that returns a future: its caller gets an answer once the future has its result."""
    function.answers_later = True
    return function


functions = SimpleNamespace(async_execution=async_execution)


class RRef:
    """A reference to an object: the name of the process that owns it, and a number, by which the owner finds it."""

    def __init__(self, thing: Any) -> None:
        self.owner, self.number = _me().name, next(_numbers)
        _owned[self.number] = thing

    def to_here(self) -> Any:
        """Return a copy of the object."""
        return rpc_sync(self.owner, fetch, (self.number,))

    def local_value(self) -> Any:
        """Return the object itself. RuntimeError in any process but its owner."""
        if self.owner != _me().name:
            raise RuntimeError(f"Can't call local_value() in {_me().name}: {self.owner} owns the object.")
        return fetch(self.number)

    def rpc_sync(self) -> "Calls":
        """Return an object whose methods call those of the object that this refers to, and return their results."""
        return Calls(self, rpc_sync)

    def rpc_async(self) -> "Calls":
        """Return an object whose methods call those of the object that this refers to, and return futures."""
        return Calls(self, rpc_async)


class Calls:
    """Turns a call of any method into a message to the object's owner."""

    def __init__(self, reference: Any, send: Callable[..., Any]) -> None:
        self.reference, self.send = reference, send

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *args: self.send(self.reference.owner, call, (self.reference.number, name, args))


def call(number: int, name: str, args: tuple[Any, ...]) -> Any:
    """Call a method of an object that this process owns."""
    return _run(getattr(_owned[number], name), args)


def fetch(number: int) -> Any:
    """Return an object that this process owns; the caller gets a copy."""
    return _owned[number]


def rpc_async(to: str, function: Callable[..., Any], args: tuple[Any, ...] = ()) -> Future:
    """Call a function in the process of that name, and return a future."""
    sent, future = pickle.dumps((function, args)), Future()
    threading.Thread(target=_send, args=(to, sent, future), daemon=True).start()
    return future


def rpc_sync(to: str, function: Callable[..., Any], args: tuple[Any, ...] = ()) -> Any:
    """Call a function in the process of that name, and return its result."""
    return rpc_async(to, function, args).wait()


def init_rpc(name: str, rank: int, world_size: int) -> None:
    """Join a group of so many processes under this name: from now on, the others can call functions here."""
    global _process
    _process = _Process(name, world_size, Path(os.environ[FOLDER]), os.environ[KEY].encode())
    listener = Listener(("127.0.0.1", 0), backlog=64, authkey=_process.key)
    threading.Thread(target=_listen, args=(listener,), daemon=True).start()
    _tell(f"{name}.port", str(listener.address[1]))
    _wait_for(lambda: _count("*.port") == world_size, "join")


def shutdown() -> None:
    """Answer calls until all processes of the group have called this."""
    _tell(f"{_me().name}.done", "")
    _wait_for(lambda: _count("*.done") == _me().of, "end")


class _Process(NamedTuple):
    name: str
    of: int
    folder: Path
    key: bytes


_process: _Process | None = None
_owned: dict[int, Any] = {}
_numbers = itertools.count()


def _me() -> _Process:
    if _process is None:
        raise RuntimeError("Call rpc.init_rpc first: this process has no name yet.")
    return _process


def _tell(file: str, words: str) -> None:
    """Write a file into the folder, whole at once."""
    part = _me().folder / f"{file}.part"
    part.write_text(words)
    part.rename(_me().folder / file)


def _count(pattern: str) -> int:
    return len([*_me().folder.glob(pattern)])


def _wait_for(done: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + LIMIT_S
    while not done():
        if time.monotonic() > until:
            raise TimeoutError(f"The other processes did not {what} within {LIMIT_S:g} seconds.")
        time.sleep(0.002)


def _run(function: Any, args: tuple[Any, ...]) -> Any:
    result = function(*args)
    if not getattr(function, "answers_later", False):
        return result
    if not isinstance(result, _Future):
        kind = type(result).__name__
        raise RuntimeError(f"{function.__name__} is marked async_execution: it must return a Future, but got a {kind}.")
    return result.result(LIMIT_S)


def _listen(listener: Listener) -> None:
    while True:
        threading.Thread(target=_answer, args=(listener.accept(),), daemon=True).start()


def _answer(connection: "Connection[Any, Any]") -> None:
    with connection:
        try:
            answer = pickle.dumps((True, _run(*pickle.loads(connection.recv_bytes()))))
        except Exception as error:
            answer = pickle.dumps((False, f"On {_me().name}: {error!r}"))
        connection.send_bytes(answer)


def _send(to: str, sent: bytes, future: Future) -> None:
    try:
        port = int((_me().folder / f"{to}.port").read_text())
        with Client(("127.0.0.1", port), authkey=_me().key) as connection:
            connection.send_bytes(sent)
            good, answer = pickle.loads(connection.recv_bytes())
        future.set_result(answer) if good else future.set_exception(RuntimeError(answer))
    except Exception as error:
        future.set_exception(error)
