"""Arithmetic on half floats, computed in float32: sums in half precision lose small summands and overflow at 65,504."""

from typing import Any

import numpy as np


def widen(x: Any) -> Any:
    """Convert ``x`` to floats of at least 32 bits: half floats become float32."""
    plain = x.dtype.kind == "f" and x.dtype.itemsize >= 4  # quicker than result_type
    return x if plain else x.astype(np.result_type(x.dtype, np.float32))


def as_dtype(x: Any, dtype: Any) -> Any:
    """``x`` in this dtype. If the dtypes are equal, ``x`` itself: pickle distinguishes equal dtype objects."""
    return x if x.dtype == dtype else x.astype(dtype)


def in_float32(cls: Any, problem: Any, params: dict[str, Any], rows: Any) -> tuple[float, dict[str, Any]]:
    """``cls.loss_and_gradient`` on half floats, computed in float32."""
    single = {name: p.astype(np.float32) for name, p in params.items()}
    part = problem.subset(rows)
    part.X = part.X.astype(np.float32)
    loss, gradient = cls.loss_and_gradient(part, single)
    return loss, {name: g.astype(params[name].dtype) for name, g in gradient.items()}
