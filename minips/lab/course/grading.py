"""Grade an exercise of a notebook file: run its cells up to the check in a fresh kernel, and read the verdict."""

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import nbformat
from jupyter_client.kernelspec import NoSuchKernel
from nbclient import NotebookClient
from nbclient.exceptions import CellTimeoutError, DeadKernelError

from minips.engines.supervisor import handling
from minips.lab.course.exercises import Verdict, exercise
from minips.lab.course.lessons import arguments, read
from minips.lab.course.questions import full_key

CELL_S = 120
"""The most seconds that one cell may take."""
SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""The signals that end a check early."""
ASK = """import json as _json
from minips.lab.course.exercises import VERDICTS as _verdicts
print(_json.dumps([_verdicts[{key!r}].passed, _verdicts[{key!r}].words] if {key!r} in _verdicts else None))"""
"""The source of the cell that is added after the check."""


class _Client(NotebookClient):
    """Runs a notebook. Ctrl-C and SIGTERM cancel the run, which ends the kernel cleanly. nbclient's own handlers end
    the kernel while other code still waits for it, and that code then fails in many ways.
    """

    stopped_by: int | None = None
    """The signal that cancelled the run."""

    async def async_start_new_kernel(self, **options: Any) -> None:
        """Start the kernel, after replacing the handlers that nbclient has just set."""
        loop, work = asyncio.get_running_loop(), asyncio.current_task()
        assert work is not None

        def stop(number: int) -> None:
            self.stopped_by = number
            work.cancel()

        with suppress(RuntimeError):  # Windows, and threads other than the main one, have no such handlers
            for number in SIGNALS:
                loop.add_signal_handler(number, stop, number)
        await super().async_start_new_kernel(**options)


def with_a_kernel(call: Callable[..., object], **options: Any) -> None:
    """Make a call that starts a kernel, and repeat it once if the kernel dies before it can answer: another process may
    have taken a port that was free when the kernel was started.
    """
    try:
        call(**options)
    except RuntimeError as error:
        if "before replying" not in str(error):
            raise
        call(**options)


def grade(key: str, path: Path) -> Verdict:
    """Return the verdict of ``lab.check(key, …)`` in the notebook at ``path``, run without asking for predictions.

    ValueError if the exercise or the notebook does not exist, or the notebook has no such check. RuntimeError if the
    notebook's kernel is not installed, or the run does not reach the check. A pass is not recorded, since the notebook
    may belong to another person.
    """
    key = exercise(key).key
    cells = read(path)["cells"]
    checks = [i for i, cell in enumerate(cells) if key in map(full_key, arguments(cell, "check"))]
    if not checks:
        raise ValueError(f'{path} has no cell with lab.check("{key}", …).')
    book: Any = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    book.cells = book.cells[: checks[-1] + 1]
    book.cells.append(nbformat.v4.new_code_cell(ASK.format(key=key)))  # type: ignore[no-untyped-call]
    client = _Client(
        book,
        timeout=CELL_S,
        allow_errors=True,
        store_widget_state=False,
        resources={"metadata": {"path": str(path.resolve().parent)}},
    )
    environment = {**os.environ, "MINIPS_AUTOPLAY": "1"}
    try:
        with handling(None, *SIGNALS):
            # a kernel that is stopped in a cell prints errors
            with_a_kernel(client.execute, env=environment, stderr=subprocess.DEVNULL)
    except CellTimeoutError:
        raise RuntimeError(f"A cell of {path} took longer than {CELL_S} s.") from None
    except NoSuchKernel as error:
        raise RuntimeError(
            f"{path} needs the kernel {error.name!r}, which is not installed here. Choose another in JupyterLab and "
            "save it."
        ) from None
    except (asyncio.CancelledError, DeadKernelError):
        if client.stopped_by is not None:
            signal.raise_signal(client.stopped_by)
        raise RuntimeError(f"The kernel died while it ran {path}.") from None
    said = "".join(output.get("text", "") for output in book.cells[-1].outputs)
    outcome = json.loads(said) if said.strip() else None
    if outcome is None:
        raise RuntimeError(f"The check of {key} in {path} was not reached. {_first_error(book)}".strip())
    passed, words = outcome
    return Verdict(key, passed, words)


def _first_error(book: Any) -> str:
    for number, cell in enumerate(book.cells, 1):
        for output in cell.get("outputs", []):
            if output.output_type == "error":
                return f"Cell {number} stopped with {output.ename}: {output.evalue}"
    return ""
