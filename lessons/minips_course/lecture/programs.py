"""Runs programs on torch.distributed.rpc in two processes, and replaces torch's reference in checks without torch."""

import copy
import json
import os
import select
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import minips
from minips.lab.course.recorded import record, recorded
from minips_course.arrays import array_bytes

LAUNCHER = Path(__file__).with_name("launch.py")
KEY = "lecture.torch"
LIMIT_S = 100.0
"""The time limit of a program, in seconds."""
LONGEST = 300
"""The length, in characters, to which an error is cut before it is shown."""


class Ending(NamedTuple):
    """The error of each of a program's two processes (empty if none), and the worker's printed output."""

    server: str
    worker: str
    said: str

    @property
    def numbers(self) -> list[float]:
        """The numbers that the worker printed."""
        return [float(word) for word in self.said.split()]

    def __repr__(self) -> str:
        lines = [f"{name}: {error or 'came to its end'}" for name, error in zip(("ps", "worker1"), self, strict=False)]
        if self.said.strip() and not self.worker:
            lines.append(f"worker1 printed: {self.said.strip()}")
        return "\n".join(lines)


class Pair:
    """Runs programs on torch in two processes, or returns recorded results if torch is not installed. A program's
    argument is the number of its process, 0 or 1.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self.values: dict[str, Any] = {}
        self.here = sys.platform == "linux" and find_spec("torch") is not None and self._start()
        if self.here:
            print(f"torch {self.values['torch']} is here. The programs run in processes of this machine.")
        else:
            self.values = recorded(KEY)
            print(f"They are those of torch {self.values['torch']}.")

    def run(self, name: str, program: str) -> Ending:
        """Run a program in both processes. ValueError if torch is missing and no result of this name was recorded."""
        if self.here:
            if not self._process:  # a learner runs a cell again after `close`
                self._start()
            assert self._process
            told = self._ask(self._process, {"program": program, "limit": LIMIT_S})
            shown = [" ".join(error.partition("\nTraceback")[0].split())[:LONGEST] for error in told["errors"]]
            self.values[name] = [*shown, told["said"][1]]
        if name not in self.values:
            raise ValueError(f"torch is not here, and nothing was recorded of {name!r}.")
        return Ending(*self.values[name])

    def close(self) -> None:
        """End the process that starts the others, and save the programs' results if recording is on."""
        if self._process:
            self._end(self._process)
            record(KEY, self.values)

    def _start(self) -> bool:
        package = str(Path(minips.__file__).parents[1])
        path = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))
        process = subprocess.Popen(
            [sys.executable, "-P", str(LAUNCHER)],
            env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
            start_new_session=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._process = process
        try:
            self.values |= self._told(process)
        except (ValueError, OSError):  # torch cannot be imported
            process.kill()
            self._end(process)
            return False
        return True

    def _ask(self, process: "subprocess.Popen[str]", what: Mapping[str, Any]) -> Any:
        try:
            if process.stdin:
                process.stdin.write(json.dumps(what) + "\n")
                process.stdin.flush()
            return self._told(process)
        except BaseException:  # the next request would read this one's late answer
            process.kill()
            self._end(process)
            raise

    def _told(self, process: "subprocess.Popen[str]") -> Any:
        assert process.stdout
        if not select.select([process.stdout], [], [], 2 * LIMIT_S)[0]:
            raise TimeoutError(f"The process that starts torch's programs said nothing for {2 * LIMIT_S:g} seconds.")
        return json.loads(process.stdout.readline())

    def _end(self, process: "subprocess.Popen[str]") -> None:
        self._process = None
        if process.stdin:
            with suppress(OSError):
                process.stdin.close()  # this ends the process
        process.wait(LIMIT_S)
        if process.stdout:
            process.stdout.close()


RACE = """
import sys

import torch
from torch.distributed import rpc

from minips_course.lecture import race


class ParameterServer:
    def __init__(self, values):
        self.params = torch.zeros(values)

    def apply_gradients(self, gradients):
        self.params -= 0.5 * gradients
        return self.params


def references():
    return [rpc.RRef(one) for one in served]


def addresses():
    return [server.address for server in servers]


if __name__ == "__main__":
    rank, sizes = int(sys.argv[1]), [2, 25_000, 250_000]
    if rank == 0:
        served = [ParameterServer(values) for values in sizes]
        servers = [race.serve(values) for values in sizes]
    rpc.init_rpc(["ps", "worker1"][rank], rank=rank, world_size=2)
    if rank == 1:
        torchs, ours = rpc.rpc_sync("ps", references), rpc.rpc_sync("ps", addresses)
        for reference, address, values in zip(torchs, ours, sizes):
            print(*race.race(reference, address, torch.ones(values)))
    rpc.shutdown()
"""
"""A program that prints, for each size, a line of the ratios that `race.race` returns."""


class NotTheOwnerError(RuntimeError):
    """Raised if a reference is asked for its object in a process that does not own the object."""


class Reference:
    """Replaces torch's RRef at a worker: copies each argument and result, and records the largest message's size."""

    def __init__(self, owned: Any) -> None:
        self._owned = owned
        self.largest = 0
        """The bytes of the largest message so far: a call's arguments, its result, or the whole object."""
        self.promised: list[Promise] = []
        """The futures of all calls through `rpc_async`."""

    def to_here(self) -> Any:
        """Return a copy of the object."""
        return self._travelled(self._owned)

    def local_value(self) -> Any:
        """Raise an error, as torch does in every process except the owner's; there, it returns the object itself."""
        raise NotTheOwnerError("Can't call local_value() on a reference whose object another process owns.")

    def rpc_sync(self) -> "Calls":
        """Return a proxy of the object whose methods return their results."""
        return Calls(self._call)

    def rpc_async(self) -> "Calls":
        """Return a proxy of the object whose methods return a future. The call is made as late as it may be: where
        ``wait()`` asks for its result.
        """
        return Calls(self._promise)

    def _promise(self, name: str, args: tuple[Any, ...]) -> "Promise":
        sent = self._travelled(args)
        self.promised.append(Promise(lambda: self._call(name, sent)))
        return self.promised[-1]

    def _call(self, name: str, args: tuple[Any, ...]) -> Any:
        method = getattr(self._owned, name)
        return self._travelled(method(*self._travelled(args)))

    def _travelled(self, thing: Any) -> Any:
        self.largest = max(self.largest, array_bytes(thing))
        return copy.deepcopy(thing)


class Calls:
    """A proxy with the methods of an object in another process."""

    def __init__(self, call: Callable[[str, tuple[Any, ...]], Any]) -> None:
        self._made = call

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return partial(self._send, name)

    def _send(self, name: str, *args: Any) -> Any:
        return self._made(name, args)


class Promise:
    """A future: ``wait()`` waits for its result and returns it."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self._results: list[Any] = []

    def wait(self) -> Any:
        """Return the result."""
        self._results = self._results or [self._call()]
        return self._results[0]

    def done(self) -> bool:
        """Return True once the result has been waited for."""
        return bool(self._results)

    def value(self) -> Any:
        """Return the result. RuntimeError if it has not been waited for, as in torch if it is not there yet."""
        if not self.done():
            raise RuntimeError("The future is not done: wait for it.")
        return self._results[0]
