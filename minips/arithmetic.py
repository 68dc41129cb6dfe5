"""One thread for arithmetic, where results are to be the same to the bit: threads add a sum in another order."""

import threading
from contextlib import ContextDecorator
from typing import Any


class _OneBlasThread(ContextDecorator):
    """``with``, or a decorator: limits BLAS to one thread in this whole process, and restores the former numbers.

    Blocks may nest and run side by side in several threads: the first sets the limit, the last restores. It does
    nothing where threadpoolctl finds no BLAS. With an OpenBLAS on OpenMP the limit holds in the thread that sets it.
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
    """From version 3.8 threadpoolctl ignores, without a word, every thread but the one that set a number first."""
    from threadpoolctl import OpenBLASController

    if hasattr(OpenBLASController, "clear_controlling_thread"):
        OpenBLASController.clear_controlling_thread(force=True)


one_blas_thread = _OneBlasThread()
