"""Processes that grade, each with a sandbox of its own.

A check may change what a process has only once, such as its registered stages, and its time limit needs the main
thread. So each `Grader` is a process: it takes a task as a line of JSON, and answers with an outcome. It ends with the
process that started it, and takes its sandbox along.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn, Self

from minips.lab.course.running import Marked, Runner
from minips.sandbox import end_with_parent

if sys.platform != "win32":
    import resource

MOST_BYTES = 2**32
"""The most memory of a process that grades: what an answer sends must not fill the machine."""
END_S = 3.0
"""The most seconds until a process has ended its sandbox."""


class Grader:
    """A process that grades one answer after another. Use it with ``with``."""

    def __init__(self, modules: Sequence[str]) -> None:
        paths = [path for path in sys.path if path] + [str(Path(__file__).parents[3])]
        code = (
            f"import sys; sys.path[:] = {paths!r}; from minips.lab.course.graders import serve; serve({[*modules]!r})"
        )
        self._process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "MINIPS_AUTOPLAY": "1"},  # nothing is noted as the teacher's progress
            start_new_session=True,  # Ctrl-C does not reach it
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process. What another thread asks then raises RuntimeError."""
        self._process.terminate()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe:
                with suppress(OSError):
                    pipe.close()

    def protections(self) -> list[str]:
        """Return the protections of the sandbox. RuntimeError if it does not start."""
        return list(self._ask({}))

    def grade(self, key: str, cells: Sequence[tuple[int, str]], answer: str, seed: int) -> Marked:
        """Return the mark of an answer, as `Runner.grade` does."""
        return Marked(**self._ask({"key": key, "cells": cells, "answer": answer, "seed": seed}))

    def _ask(self, task: dict[str, Any]) -> Any:
        to, back = self._process.stdin, self._process.stdout
        assert to
        assert back
        try:
            to.write(json.dumps(task) + "\n")
            to.flush()
            line = back.readline()
        except (OSError, ValueError):
            line = ""
        if not line:
            raise RuntimeError("A process that grades has ended.")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["value"]


def serve(modules: Sequence[str]) -> None:
    """Grade what comes on standard input. The process's main function."""
    signal.signal(signal.SIGTERM, _end)
    end_with_parent(signal.SIGTERM)
    with suppress(ValueError, OSError):  # not all systems have this limit
        resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, resource.getrlimit(resource.RLIMIT_AS)[1]))
    with os.fdopen(os.dup(0)) as tasks, os.fdopen(os.dup(1), "w") as answers, Runner(modules) as runner:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1):  # what a check prints must not get into an answer
            os.dup2(nowhere, standard)
        for line in tasks:
            task = json.loads(line)
            try:
                value: Any = asdict(runner.grade(**task)) if task else runner.protections()
                answer = {"value": value}
            except (RuntimeError, OSError) as error:
                answer = {"error": str(error)}
            answers.write(json.dumps(answer) + "\n")
            answers.flush()


def _end(number: int, frame: object) -> NoReturn:
    raise SystemExit
