"""The surroundings of every test and of every notebook kernel that the test run starts."""

import compileall
import os
import signal
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

# A shell that starts the tests in the background ignores Ctrl-C, and so would all the programs that they interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ["MINIPS_AUTOPLAY"] = "1"  # the lessons' predictions answer themselves
os.environ["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"  # a kernel under a debugger's eye would print a warning
os.environ.pop("MPLBACKEND", None)  # a kernel draws into the notebook
collect_ignore = ["tests/on_ray.py"]  # a program of its own, whose stage would be registered here
if not find_spec("torch"):  # which no extra that tests need brings
    collect_ignore.append("minips/torch.py")


def pytest_configure(config: pytest.Config) -> None:
    """Compile minips and its course once: else each of hundreds of processes would, under PYTHONDONTWRITEBYTECODE."""
    if not hasattr(config, "workerinput"):  # the first process of the test run
        for package in ("minips", "lessons/minips_course"):
            compileall.compile_dir(Path(__file__).parent / package, quiet=1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those that run alone come first: later, each would wait for the end of a long one beside it."""
    items.sort(key=lambda item: item.get_closest_marker("alone") is None)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Each test goes to the process that is free; the browser's share a JupyterLab, and a notebook's cells a kernel."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            path = nodeid.partition("::")[0]
            return path if path.startswith("tests/browser/") or path.endswith(".ipynb") else nodeid

        def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
            super().mark_test_complete(node, item_index, duration)
            work = self.assigned_work[node]  # looked through after each test, so what is done is taken out
            scope = self._split_scope(self.registered_collections[node][item_index])
            if all(work[scope].values()):
                del work[scope]

    return Scheduling(config, log)
