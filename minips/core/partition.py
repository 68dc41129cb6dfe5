"""The partition of the parameters' values over the servers.

The values of all tensors, in the dict's order, are cut into contiguous ranges of nearly equal numbers of bytes, one for
each server. A tensor within one range keeps its shape; a tensor that is cut is sent as flat pieces.
"""

import math
import reprlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from minips.core.rows import Rows, TablePart, put
from minips.intake import as_array
from minips.results.state import LeftState, WorkerState
from minips.stage import Array, Tensors
from minips.stages.serializers.base import dtype_name
from minips.words import check_name


class Layout(NamedTuple):
    """A whole tensor's shape and dtype, and the range of its flattened values that one server holds."""

    shape: tuple[int, ...]
    dtype: str
    start: int
    stop: int

    @property
    def size(self) -> int:
        """The number of values of the whole tensor."""
        return math.prod(self.shape)

    @property
    def values(self) -> int:
        """The number of values on this server."""
        return self.stop - self.start

    @property
    def whole(self) -> bool:
        """True if this server holds the whole tensor."""
        return self.start == 0 and self.stop == self.size

    def cut(self, x: Array) -> Array:
        """This server's piece of the whole tensor ``x``, as a view if ``x`` is contiguous."""
        return x if self.whole else np.ascontiguousarray(x).reshape(-1)[self.start : self.stop]


Layouts = Mapping[str, Layout | TablePart]


def partition(
    tensors: Mapping[str, Array], servers: int, tables: Collection[str] = (), placement: str = "ranges"
) -> list[dict[str, Layout | TablePart]]:
    """The layout of each server. ``tables`` are split between rows: into ranges of rows or, with ``"modulo"``, so that
    row i goes to server i mod ``servers``.

    >>> [{name: (part.start, part.stop) for name, part in layout.items()}
    ...  for layout in partition({"w": np.zeros(6), "b": np.zeros(2)}, 2)]
    [{'w': (0, 4)}, {'w': (4, 6), 'b': (0, 2)}]
    """
    return [layout_at(tensors, servers, index, tables, placement) for index in range(servers)]


def layout_at(
    tensors: Mapping[str, Array], servers: int, index: int, tables: Collection[str] = (), placement: str = "ranges"
) -> dict[str, Layout | TablePart]:
    """The layout of a single server, computed without the other servers' layouts."""
    layout: dict[str, Layout | TablePart] = {}
    total, before = sum(x.nbytes for x in tensors.values()), 0
    for name, x in tensors.items():
        table, dtype = name in tables, dtype_name(x.dtype)
        count, unit = (len(x), max(x.nbytes // max(len(x), 1), 1)) if table else (x.size, x.itemsize)
        ends = [min(max(round((total * k / servers - before) / unit), 0), count) for k in (index, index + 1)]
        start, stop = ends if index + 1 < servers else (ends[0], count)
        if table and placement == "modulo":
            layout[name] = TablePart(x.shape, dtype, index, count, servers)
        elif start < stop or (index == 0 and count == 0):
            where = x.shape, dtype, start, stop
            layout[name] = TablePart(*where, 1) if table else Layout(*where)
        before += x.nbytes
    return layout


def native(x: ArrayLike, what: str = "The array") -> Array:
    """``x`` as an array in this machine's byte order, since a dtype's name does not include the order. ValueError, with
    ``what`` as the array's name, for a masked array.
    """
    if isinstance(x, Rows):
        raise ValueError("Only a table takes ps.Rows: name it in Problem.tables, or in ps.Server(…, tables=…).")
    array = as_array(x, what)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def named_arrays(given: object, takes: str, what: str, integers: Callable[[str], bool] = lambda _: False) -> Tensors:
    """The given arrays by name: floats or, if ``integers(name)``, also integers. TypeError or ValueError for others."""
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise TypeError(
            f'{takes} as a mapping of names to arrays, such as {{"w": np.zeros(3)}}; got {reprlib.repr(given)}.'
        )
    arrays = {name: native(x, f"The {what} {name!r}") for name, x in given.items()}
    for name, x in arrays.items():
        check_name(what, name)
        if x.dtype.kind not in ("biuf" if integers(name) else "f"):
            raise ValueError(
                f"The {what} {name!r} must hold floating-point numbers; got {x.dtype}. "
                "Convert it, for example with .astype(np.float32)."
            )
    return arrays


def cut(tensors: Tensors, layout: Layouts) -> Tensors:
    """One server's pieces of the whole tensors."""
    return {name: part.cut(tensors[name]) for name, part in layout.items()}


def cut_state(state: WorkerState, index: int, layout: Layouts | None) -> LeftState:
    """One server's part of a worker's state. Without a ``layout``, the state is for a single server."""
    seen = state["seen"] and [cut(x, layout) if layout and isinstance(x, dict) else x for x in state["seen"]]
    return LeftState(link=state["links"][index], seen=seen)


def join_state(parts: Sequence[LeftState], layouts: Sequence[Layouts] | None) -> WorkerState:
    """Join the parts of all the servers into a worker's state. Without ``layouts``, it is for a single server."""
    seen = [
        join([*pieces], layouts) if layouts and isinstance(pieces[0], dict) else pieces[0]
        for pieces in zip(*(part["seen"] or () for part in parts), strict=True)
    ]
    return WorkerState(links=[part["link"] for part in parts], seen=seen or None)


def join(pieces: list[Tensors], layouts: Sequence[Layouts], rows: Mapping[str, Sequence[int]] | None = None) -> Tensors:
    """Join the servers' pieces, in the layouts' order, into whole tensors or, for a tensor in ``rows``, these rows."""
    whole: Tensors = {}
    for tensors, layout in zip(pieces, layouts, strict=True):
        for name, piece in tensors.items():
            part, wanted = layout[name], (rows or {}).get(name)
            if part.whole and wanted is None:
                whole[name] = piece if piece.flags.writeable else piece.copy()
                continue
            if name not in whole:
                shape = part.shape if wanted is None else (len(wanted), *part.shape[1:])
                whole[name] = np.empty(shape, part.dtype)
            if wanted is None and isinstance(part, Layout):
                whole[name].reshape(-1)[part.start : part.stop] = piece.reshape(-1)
            else:
                put(part, whole[name], piece, wanted)
    return whole
