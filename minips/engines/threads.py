"""Runs servers and workers as threads of this process: quick to start, easy to debug, but all under one lock."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from minips.engines.local import LocalEngine
from minips.engines.supervisor import Child, ControlPipe, multiprocess, run_role
from minips.stage import register


@register
@dataclass(frozen=True)
class Threads(LocalEngine):
    """All servers and workers in this process. Any transport works; times include the cost of a shared interpreter."""

    name = "threads"

    def start(self, *names: str) -> list[Child]:
        return [_ThreadChild(who) for who in names]


class _ThreadChild(Child):
    def __init__(self, who: str) -> None:
        here, self._there = multiprocess().Pipe()
        super().__init__(who, here)
        self._thread: threading.Thread | None = None
        self._how = "its thread returned"

    def assign(self, role: Callable[..., Any], parts: dict[str, Any]) -> None:
        def run() -> None:
            with self._there:
                control = ControlPipe(self._there)
                try:
                    run_role(role, control, parts)
                except SystemExit as end:  # from user code; in a process it would end the process
                    is_status = isinstance(end.code, int | None)
                    self._how = f"its exit code was {end.code or 0 if is_status else 1}"
                    if not is_status:
                        control.send("log", f"{end.code}")

        thread = threading.Thread(target=run, name=f"minips-{self.who}", daemon=True)
        thread.start()
        self._thread = thread  # set only after it has started

    def end(self, timeout: float) -> str:
        self.pipe.close()
        if self._thread:
            self._thread.join(timeout)
        else:
            self._there.close()
        self.gone = True
        return "it is still running" if self._thread and self._thread.is_alive() else self._how
