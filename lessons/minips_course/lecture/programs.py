"""Runs the lesson's programs: in two processes on `minips_course.lecture.rpc` and, where it is installed, on torch."""

import copy
import difflib
import json
import os
import re
import secrets
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import dill

import minips
import minips_course
from minips import files
from minips.lab.course.recorded import NotRunError, fingerprint, record, recorded
from minips_course import gone
from minips_course.arrays import array_bytes
from minips_course.lecture import rpc

__getattr__ = gone(__name__)

LAUNCHER = Path(__file__).with_name("launch.py")
KEY = "lecture.torch"
LIMIT_S = 100.0
"""The time limit of a program, in seconds."""
KILLED_AFTER_S = 1.0
"""The seconds between the failure of one process and the killing of the others."""
LONGEST = 300
"""The length, in characters, to which an error is cut before it is shown."""
TORCH, SMALL = "from torch.distributed import rpc", "import rpc"
MAIN = """

if __name__ == "__main__":
    import sys

    rank = int(sys.argv[1])
    rpc.init_rpc(["ps", "worker1"][rank], rank=rank, world_size=2)
    [run_ps, run_worker][rank]()
    rpc.shutdown()
"""
"""The end of each program, which both processes run. A program's argument is the number of its process, 0 or 1."""
FIRST = "as it stands"
MENDS: dict[str, list[tuple[str, str]]] = {
    "a function of the module": [
        ("lambda: global_ps_rref", "the_reference"),
        ("def run_worker", "def the_reference():\n    return global_ps_rref\n\n\ndef run_worker"),
    ],
    "a global of the module": [
        ("    global_ps_rref = rpc.RRef(ParameterServer())", "    pass"),
        ("def run_ps", "served = ParameterServer()\n\n\ndef run_ps"),
        ("return global_ps_rref", "return rpc.RRef(served)"),
    ],
    "without local_value": [
        (
            '    server = rpc.rpc_sync("ps", the_reference).to_here()\n',
            '    reference = rpc.rpc_sync("ps", the_reference)\n    server = reference.to_here()\n',
        ),
        (
            "    server.local_value().apply_gradients(np.ones(2))\n",
            "    server.apply_gradients(np.ones(2))\n    print(*server.params, *reference.to_here().params)\n",
        ),
    ],
    "through the reference": [
        ("    server = reference.to_here()\n", ""),
        ("    server.apply_gradients", "    reference.rpc_sync().apply_gradients"),
        ("print(*server.params, *reference", "print(*reference"),
    ],
    "without the mark": [("    @rpc.functions.async_execution\n", "")],
}
"""Maps each step of the lesson to what it replaces in the program."""


class Ending(NamedTuple):
    """The error of each of a program's two processes (empty if none), and the worker's printed output."""

    server: str
    worker: str
    said: str

    @property
    def numbers(self) -> list[float]:
        """The numbers that the worker printed."""
        return [float(word) for word in self.said.split()]

    @property
    def sums(self) -> dict[str, float]:
        """The sums of the absolute parameters that the worker printed: its own, then the server's."""
        own = [abs(number) for number in self.numbers] or [0.0] * 4
        return {"worker": sum(own[: len(own) // 2]), "server": sum(own[len(own) // 2 :])}

    @property
    def kind(self) -> tuple[Any, ...]:
        """What two runs of one program have in common: the errors that the worker names, or what it printed."""
        return (*sorted({*re.findall(r"\b\w+Error\b", self.worker)}),) if self.worker else (*self.numbers,)

    def __repr__(self) -> str:
        lines = [f"{name}: {error or 'came to its end'}" for name, error in zip(("ps", "worker1"), self, strict=False)]
        if self.said.strip() and not self.worker:
            lines.append(f"worker1 printed: {self.said.strip()}")
        return "\n".join(lines)


class Pair:
    """Runs programs in two processes, on the small `rpc` of this lesson, and keeps them, to run them on torch, too."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self.values: dict[str, Any] = {}
        self.programs: dict[str, str] = {}
        self.endings: dict[str, Ending] = {}

    @property
    def last(self) -> Ending:
        """How the last program ended."""
        return next(reversed(self.endings.values()))

    @property
    def errors(self) -> list[str]:
        """The error of each program's worker, empty if there was none."""
        return [ending.worker for ending in self.endings.values()]

    def run(self, program: str, name: str = FIRST) -> Ending:
        """Run a program in both processes, and return how they ended."""
        for kept in (self.programs, self.endings):
            kept.pop(name, None)
        self.programs[name] = program
        self.endings[name] = run_all(_whole(program).replace(TORCH, SMALL), 2)
        return self.last

    def mend(self, program: str, name: str) -> str:
        """Change a program as the step of that name does, print the change, run the new program, print how it ended,
        and return it. ValueError if the program does not contain what the step replaces.
        """
        mended = program
        for old, new in MENDS[name]:
            if old not in mended:
                raise ValueError(f"The program has no {old.strip()!r}, which this step replaces. Run the cells above.")
            mended = mended.replace(old, new)
        lines = difflib.unified_diff(program.splitlines(), mended.splitlines(), n=0, lineterm="")
        changed = [line for line in [*lines][2:] if line[:2] != "@@"]
        print("\n".join(line for line in changed if line.strip() not in ("", "+", "-")))
        print(f"\n{self.run(mended, name)!r}")
        return mended

    def beside_torch(self) -> dict[str, Any]:
        """Run the programs on torch, too; if it is not installed, take the recorded results of the lesson's own
        programs. Print both endings of each worker. Return the number of programs, how many of them ended in the same
        way, and torch's version.
        """
        here = sys.platform == "linux" and find_spec("torch") is not None and self._start()
        if not here:
            self.values = recorded(KEY)
        theirs = {}
        for name, program in self.programs.items():
            with suppress(NotRunError):
                theirs[name] = self._on_torch(name, program)
        self.close()
        for name in self.programs:
            print(f"{name}\n    here:  {_told(self.endings[name])}")
            print(f"    torch: {_told(theirs[name]) if name in theirs else NotRunError('torch')}")
        same = sum(self.endings[name].kind == one.kind for name, one in theirs.items())
        return {"same": same, "count": len(theirs), "version": self.values["torch"]}

    def _on_torch(self, name: str, program: str) -> Ending:
        """Run a program on torch. NotRunError if torch is missing, and no result of this very program was recorded."""
        if self._process:
            told = self._ask(self._process, {"program": _whole(program), "limit": LIMIT_S})
            shown = [_short(error.partition("\nTraceback")[0]) for error in told["errors"]]
            self.values[name] = {"of": fingerprint(program), "ending": [*shown, told["said"][1]]}
        kept = self.values.get(name, {})
        if kept.get("of") != fingerprint(program):
            raise NotRunError("torch")
        return Ending(*kept["ending"])

    def close(self) -> None:
        """End the process that starts torch's programs, and save their results if recording is on."""
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


def _whole(program: str) -> str:
    return program if "__main__" in program else program + MAIN


def _short(words: str) -> str:
    return " ".join(words.split())[:LONGEST]


def _told(ending: Ending) -> str:
    return ending.worker or f"{ending.said.strip()} is printed"


def run_all(program: str, count: int, **given: bytes) -> Ending:
    """Run a program in so many processes, each in its own interpreter: the last one is the worker. Their folder
    contains the ``given`` files.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, content in (
            given | {"program.py": program.encode(), "rpc.py": Path(rpc.__file__).read_bytes()}
        ).items():
            files.write(folder / file, content)
        path = os.pathsep.join([str(Path(one.__file__ or "").parents[1]) for one in (minips, minips_course)])
        own = {rpc.FOLDER: name, rpc.KEY: secrets.token_hex(), "OPENBLAS_NUM_THREADS": "1"}
        own["PYTHONPATH"] = os.pathsep.join(filter(None, [path, os.environ.get("PYTHONPATH")]))
        running = [
            subprocess.Popen(
                [sys.executable, "program.py", str(rank)],
                cwd=name,
                env={**os.environ, **own},
                text=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            for rank in range(count)
        ]
        try:
            _await_all(running)
        finally:
            killed = [process for process in running if process.poll() is None]
            for process in killed:
                process.kill()
            told = [process.communicate() for process in running]
    errors = [
        "still waiting when it was stopped" if process in killed else _error(said[1]) if process.returncode else ""
        for process, said in zip(running, told, strict=True)
    ]
    return Ending(next(filter(None, errors[:-1]), ""), errors[-1], told[-1][0])


def _await_all(running: "list[subprocess.Popen[str]]") -> None:
    """Wait until all have ended or, after one has failed, for a little longer."""
    until = time.monotonic() + LIMIT_S
    while None in (ended := [process.poll() for process in running]) and time.monotonic() < until:
        if any(ended):
            until = min(until, time.monotonic() + KILLED_AFTER_S)
        time.sleep(0.01)


def _error(words: str) -> str:
    """Return the last line of a traceback, or all of what is not one."""
    lines = words.splitlines()
    frames = [number for number, line in enumerate(lines) if line.startswith("  ")]
    return _short(" ".join(lines[max(frames, default=-1) + 1 :])) or "ended with an error"


TRAINING = """
import sys
from pathlib import Path

import dill
import numpy as np
import rpc

Part, work = dill.loads(Path("answer").read_bytes())
names, aim = ["ps0", "ps1", "worker1"], [np.ones(3), np.full(2, 2.0)]


def the_reference():
    return rpc.RRef(served)


def held():
    return len(served.history), served.params


def run_worker():
    work(
        [rpc.rpc_sync(name, the_reference) for name in names[:2]],
        lambda params: [p - a for p, a in zip(params, aim)],
        int(Path("steps").read_text()),
    )
    for name, a in zip(names, aim):
        pushes, params = rpc.rpc_sync(name, held)
        print(pushes, abs(a - params).max())


rank = int(sys.argv[1])
served = Part(0 * aim[rank]) if rank < 2 else None
rpc.init_rpc(names[rank], rank=rank, world_size=3)
if rank == 2:
    run_worker()
rpc.shutdown()
"""


def train(part: type, work: Callable[..., None], steps: int = 5) -> dict[str, Any]:
    """Let the learner's worker train two of the learner's parts, in three processes. Return the steps, the pushes in
    the history of each part, and the largest distance of a parameter from its aim, which was 2 before the first step.
    ValueError if a process ends with an error.
    """
    answer = dill.dumps((part, work), recurse=True)
    ending = run_all(TRAINING, 3, answer=answer, steps=str(steps).encode())
    if ending.server or ending.worker:
        raise ValueError(f"The training stopped. Owners: {ending.server or 'no error'}. Worker: {ending.worker}.")
    return {
        "steps": steps,
        "pushes": [int(number) for number in ending.numbers[::2]],
        "distance": max(ending.numbers[1::2]),
    }


class Trips:
    """A clock without seconds: each call takes one trip to its owner and back, however many are under way at once."""

    def __init__(self) -> None:
        self.now = 0


class Reference:
    """Replaces an `RRef` in checks: copies each argument and result, records the largest message and the futures, and
    makes each call through `rpc_async` as late as it may be made, where ``wait()`` asks for its result.
    """

    def __init__(self, owned: Any, trips: Trips) -> None:
        self._owned, self._trips = owned, trips
        self.largest = 0
        """The bytes of the largest message so far: a call's arguments, its result, or the whole object."""
        self.promised: list[Promise] = []
        """The futures of all calls."""
        self.overtaking = 0
        """The calls that were sent before an earlier one was waited for, so that either may be made first."""

    def to_here(self) -> Any:
        """Return a copy of the object."""
        self._trips.now += 1
        return self._travelled(self._owned)

    def local_value(self) -> Any:
        """Raise an error, as in every process except the owner's."""
        raise RuntimeError("Can't call local_value() on a reference whose object another process owns.")

    def rpc_sync(self) -> rpc.Calls:
        """Return an object whose methods return their results."""
        return rpc.Calls(self, lambda to, function, args: self._promise(*args[1:]).wait())

    def rpc_async(self) -> rpc.Calls:
        """Return an object whose methods return futures."""
        return rpc.Calls(self, lambda to, function, args: self._promise(*args[1:]))

    owner, number = "ps", 0

    def _promise(self, name: str, args: tuple[Any, ...]) -> "Promise":
        sent = self._travelled(args)
        self.overtaking += any(not promise.done() for promise in self.promised)
        self.promised.append(Promise(lambda: self._travelled(getattr(self._owned, name)(*sent)), self._trips))
        return self.promised[-1]

    def _travelled(self, thing: Any) -> Any:
        self.largest = max(self.largest, array_bytes(thing))
        return copy.deepcopy(thing)


class Promise:
    """A future: ``wait()`` waits for its result and returns it."""

    def __init__(self, call: Callable[[], Any], trips: Trips) -> None:
        self._call, self._trips, self._arrives = call, trips, trips.now + 1
        self._results: list[Any] = []

    def wait(self) -> Any:
        """Return the result."""
        self._trips.now = max(self._trips.now, self._arrives)
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
