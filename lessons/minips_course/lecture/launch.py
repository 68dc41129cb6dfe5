"""Run programs one after another, each in two processes forked from this one, which imports torch only once.

This file runs as a script, in its own process. Each line of JSON on standard input contains a program and its limit in
seconds. The answer, a line on standard output, contains each process's error (empty if none) and its printed output.
"""

import json
import os
import signal
import socket
import sys
import tempfile
import time
import types
from pathlib import Path
from typing import Any, TextIO

KILLED_AFTER_S = 1.0
"""The seconds between the failure of one process and the killing of the other."""


def main() -> None:
    """Run the program on each line of standard input, until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    with open(os.devnull, "wb") as nowhere:
        for descriptor in (1, 2):  # so that libraries cannot print among the answers
            os.dup2(nowhere.fileno(), descriptor)
    import numpy  # noqa: F401, so that the programs need not import it again
    import torch
    from torch.distributed import rpc  # noqa: F401

    _say(answers, {"torch": torch.__version__.partition("+")[0]})
    for line in sys.stdin:
        asked = json.loads(line)
        _say(answers, _pair(asked["program"], asked["limit"]))


def _say(answers: TextIO, what: Any) -> None:
    answers.write(json.dumps(what) + "\n")
    answers.flush()


def _pair(program: str, limit: float) -> dict[str, list[str]]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), TP_SOCKET_IFNAME="lo", GLOO_SOCKET_IFNAME="lo")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        running = {}
        for rank in (0, 1):
            pid = os.fork()
            if not pid:
                _child(rank, program, folder)
            running[rank] = pid
        until = time.monotonic() + limit
        while running and time.monotonic() < until:
            for rank, pid in [*running.items()]:
                if os.waitpid(pid, os.WNOHANG)[0]:
                    del running[rank]
                    if _read(folder / f"{rank}.error"):
                        until = min(until, time.monotonic() + KILLED_AFTER_S)
            time.sleep(0.01)
        for pid in running.values():
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        errors = ["still waiting when it was stopped" if r in running else _read(folder / f"{r}.error") for r in (0, 1)]
        return {"errors": errors, "said": [_read(folder / f"{rank}.said") for rank in (0, 1)]}


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def _child(rank: int, program: str, folder: Path) -> None:
    """Run the program as ``__main__``, and then end this process."""
    try:
        with open(folder / f"{rank}.said", "w") as said:
            os.dup2(said.fileno(), 1)
        main = types.ModuleType("__main__")
        sys.modules["__main__"] = main
        sys.argv = ["program.py", str(rank)]
        exec(compile(program, "program.py", "exec"), vars(main))
    except BaseException as error:
        (folder / f"{rank}.error").write_text(f"{type(error).__name__}: {error}")
    finally:
        sys.stdout.flush()
        os._exit(0)


if __name__ == "__main__":
    main()
