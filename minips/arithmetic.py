"""Arithmetic in one thread, for results that are equal to the bit: several threads would add in a different order."""

import threading
from contextlib import ContextDecorator
from typing import Any


class _OneBlasThread(ContextDecorator):
    """A context manager or decorator that limits BLAS to one thread in the whole process, and then restores it.

    Blocks may nest and may run in several threads. The first block to begin sets the limit; the last to end lifts it.
    If threadpoolctl finds no BLAS, nothing happens. An OpenBLAS built on OpenMP is limited only in the calling thread.
    """

    def __init__(self) -> None:
        self._lock, self._depth = threading.Lock(), 0
        self._limits: Any = None

    def __enter__(self) -> None:
        from threadpoolctl import threadpool_limits

        with self._lock:
            if self._depth == 0:
                _take_control()
                self._limits = threadpool_limits(1, "blas")
            self._depth += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._depth -= 1
            if self._depth == 0:
                _take_control()
                self._limits.restore_original_limits()
                _take_control()


def _take_control() -> None:
    """Let this thread set limits. From 3.8, threadpoolctl silently ignores limits set by any thread but the first."""
    from threadpoolctl import OpenBLASController

    if hasattr(OpenBLASController, "clear_controlling_thread"):
        OpenBLASController.clear_controlling_thread(force=True)


one_blas_thread = _OneBlasThread()
