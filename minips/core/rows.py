"""Tables: tensors of which a step uses only a few rows; only these rows are sent and changed. A run without tables
never uses this module.

A worker pushes `Rows` of a table, and pulls rows by their numbers. A server holds a `TablePart`, made of whole rows,
and updates the touched rows: it gathers them, with the optimizer's state, into small arrays, lets aggregator and
optimizer process these like any tensors, and writes the results back in place.
"""

from collections.abc import Collection, Mapping, Sequence
from copy import copy
from math import prod
from typing import Any, NamedTuple

import numpy as np

from minips.core.parameters import Parameters
from minips.halves import as_dtype, widen
from minips.intake import as_array
from minips.stage import Array, Tensors
from minips.stages.aggregators import Contribution
from minips.stages.serializers.wellformed import quote


class Rows(NamedTuple):
    """The gradient of some rows of a table: the rows' numbers (integers in any order, of shape (k,)) and the rows'
    values (of shape (k, …)). The values of a repeated number are added up, in order.

    >>> Rows([7, 2, 7], np.float32([[1], [2], [3]])).summed()
    Rows(ids=array([2, 7]), values=array([[2.],
           [4.]], dtype=float32))
    """

    ids: Any
    values: Array

    def summed(self) -> "Rows":
        """These rows with each number only once, in ascending order."""
        ids, values = as_array(self.ids, "The array of row numbers"), as_array(self.values, "The array of rows")
        if (ids[1:] > ids[:-1]).all():
            return Rows(ids, values)
        once, places = np.unique(ids, return_inverse=True)
        total = widen(np.zeros((len(once), *values.shape[1:]), values.dtype))
        np.add.at(total, places, values)
        return Rows(once, as_dtype(total, values.dtype))

    @property
    def dtype(self) -> Any:
        """The dtype of the values."""
        return np.asarray(self.values).dtype

    def astype(self, dtype: Any) -> "Rows":
        """These rows with values of another dtype."""
        return Rows(self.ids, np.asarray(self.values).astype(dtype))

    def __add__(self, other: "Rows") -> "Rows":  # type: ignore[override]  # the sum of gradients, not of tuples
        return Rows(*map(np.concatenate, zip(self.summed(), other.summed(), strict=True)))

    def __truediv__(self, by: float) -> "Rows":
        ids, values = self.summed()
        return Rows(ids, values / by)


def row_numbers(given: Any, shape: tuple[int, ...], name: str = "") -> Array:
    """The numbers of rows of a tensor of this shape, as an array. ValueError if they are not a list of whole numbers,
    or if such rows do not exist; it names these rows.
    """
    of = f" for {name!r}" if name else ""
    kinds = {*map(type, given)} if isinstance(given, list) else ()
    whole = all(issubclass(kind, int | np.integer) and kind is not bool for kind in kinds)
    ids = as_array(given if whole else "", "The array of row numbers")  # a list of texts could become a huge array
    if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
        raise ValueError(
            f"Rows are a list of whole numbers, which np.flatnonzero makes of a mask; got {quote(given)}{of}."
        )
    count = shape[0] if shape else 0
    if ids.size and not 0 <= ids.min() <= ids.max() < count:
        wrong = ids[(ids < 0) | (ids >= count)]
        first = ", ".join(map(str, wrong[:8].tolist())) + ", …" * (len(wrong) > 8)
        share = f", {len(wrong)} of {len(ids)} numbers" if len(ids) > 1 else ""
        who = f"{name!r}, a tensor of shape {shape}," if name else f"A tensor of shape {shape}"
        there = f"the rows 0 to {count - 1}" if count else "no rows"
        raise ValueError(f"{who} has {there}; got {first}{share}.")
    return ids.astype(np.intp, copy=False)


class TablePart(NamedTuple):
    """A table's shape and dtype, and the rows that one server holds: every ``step``-th row from ``start`` to ``stop``.
    It replaces a `Layout`.
    """

    shape: tuple[int, ...]
    dtype: str
    start: int
    stop: int
    step: int

    @property
    def whole(self) -> bool:
        """False: rows are cut out and joined even if one server holds all of them."""
        return False

    @property
    def values(self) -> int:
        """The number of values on this server."""
        return len(range(self.start, self.stop, self.step)) * prod(self.shape[1:])

    def rows(self, rows: Any) -> tuple[Array, Array]:
        """A mask that marks which of these rows of the table are on this server, and the indices of those rows here."""
        ids = np.asarray(rows, np.intp)
        if (self.start, self.stop, self.step) == (0, self.shape[0], 1):
            return np.ones(len(ids), bool), ids
        here = (ids >= self.start) & (ids < self.stop) & (ids % self.step == self.start % self.step)
        return here, (ids[here] - self.start) // self.step

    def cut(self, x: Any) -> Any:
        """This server's rows of the whole table, as a view, or its part of the `Rows`."""
        if not isinstance(x, Rows):
            return x[self.start : self.stop : self.step]
        here, _ = self.rows(x.ids)
        return x if here.all() else Rows(x.ids[here], x.values[here])


def flat_rows(part: Any, rows: Any) -> tuple[Array, Array]:
    """A mask of these rows' flattened values, true for those on a server with this `Layout`, and their indices."""
    width = prod(part.shape[1:])
    flat = (np.asarray(rows, np.intp)[:, None] * width + np.arange(width)).reshape(-1)
    here = (flat >= part.start) & (flat < part.stop)
    return here, flat[here] - part.start


def take(part: Any, piece: Array, rows: Any) -> Array:
    """A server's part of these rows, from its ``piece``: rows of a table, or a dense tensor's flattened values.
    ValueError for rows that do not exist.
    """
    ids, table = row_numbers(rows, part.shape), isinstance(part, TablePart)
    return np.asarray(piece[part.rows(ids)[1]] if table else np.asarray(piece).reshape(-1)[flat_rows(part, ids)[1]])


def put(part: Any, whole: Array, piece: Array, rows: Any) -> None:
    """Write a server's ``piece`` into the whole table or, for given ``rows``, into the array of these rows."""
    if isinstance(part, TablePart):
        whole[slice(*part[2:]) if rows is None else part.rows(rows)[0]] = piece
    else:
        whole.reshape(-1)[flat_rows(part, rows)[0]] = piece.reshape(-1)


class TableParameters(Parameters):
    """Parameters, some of which are tables. A contribution's gradient of a table is `Rows`, whose numbers are indices
    into this server's part, each once, in ascending order. The tables share one optimizer state, the last in the list.
    """

    def __init__(self, names: Collection[str], params: Mapping[str, Array], *stages: Any) -> None:
        super().__init__({name: x for name, x in params.items() if name not in names}, *stages)
        self._tables = Parameters({name: x for name, x in params.items() if name in names}, *stages)
        self._names = [*params]
        self.rows_pushed = 0
        self.states += [{}]

    def lend(self) -> Tensors:
        lent = super().lend() | self._tables.lend()
        return {name: lent[name] for name in self._names}

    def update(self, contributions: Sequence[Contribution], scale: float, clock: int = 0) -> str | None:
        """Update as `Parameters.update` does, but in a table only the rows that some contribution has touched."""
        tables, kept = self._tables.arrays, self.states[-1]
        ids, pieces = _touched(contributions, tables)
        near = copy(self._tables)  # parameters of the touched rows only
        near.arrays = {name: table[ids[name]] for name, table in tables.items()}
        near._blocks, near._loans, near._spare, near.states = [None], {}, ({}, {}), [_gathered(kept, tables, ids)]
        lost = near.update(pieces, scale, clock)
        self.rows_pushed += sum(len(one.gradients[name][0]) for one in contributions for name in tables)
        _scatter(near.states[0], kept, tables, ids)
        self.times = near.times
        if lost is None and self.arrays:
            dense = [{name: one.gradients[name] for name in self.arrays} for one in contributions]
            both = zip(contributions, dense, strict=True)
            lost = super().update([one._replace(gradients=g) for one, g in both], scale, clock)
            self.times = near.times[0], near.times[1] + self.times[1], near.times[2] + self.times[2]
        for name, rows in near.arrays.items() if lost is None else ():
            if (loan := self._tables._loans.pop(name, None)) and loan() is not None:
                tables[name] = tables[name].copy()  # a reader keeps the array
            tables[name][ids[name]] = rows
        return lost


def _touched(contributions: Sequence[Contribution], tables: Tensors) -> tuple[Tensors, list[Contribution]]:
    """The rows of each table that some contribution has touched, and the contributions as tensors of these rows."""
    ids, gradients = {}, [dict[str, Array]() for _ in contributions]
    for name, table in tables.items():
        pushed = [Rows(*one.gradients[name]) for one in contributions]
        if len(pushed) == 1:
            ids[name], gradients[0][name] = pushed[0]
            continue
        ids[name] = np.unique(np.concatenate([rows.ids for rows in pushed]))
        for rows, given in zip(pushed, gradients, strict=True):
            given[name] = np.zeros((len(ids[name]), *table.shape[1:]), table.dtype)
            given[name][np.searchsorted(ids[name], rows.ids)] = rows.values
    return ids, [one._replace(gradients=given) for one, given in zip(contributions, gradients, strict=True)]


def _gathered(state: Mapping[str, Any], tables: Tensors, ids: Tensors) -> dict[str, Any]:
    """An optimizer's state for these rows, cut out of each array that has a table's name and shape."""
    near = {}
    for key, kept in state.items():
        if key in tables and np.shape(kept) == tables[key].shape:
            kept = kept[ids[key]]
        near[key] = _gathered(kept, tables, ids) if isinstance(kept, dict) else kept
    return near


def _scatter(near: Mapping[str, Any], state: dict[str, Any], tables: Tensors, ids: Tensors) -> None:
    """Write the state of these rows back; a new array is zero at all other rows."""
    for key, kept in near.items():
        if isinstance(kept, dict):
            _scatter(kept, state.setdefault(key, {}), tables, ids)
        elif key in tables and np.shape(kept) == (len(ids[key]), *tables[key].shape[1:]):
            if key not in state:
                state[key] = np.zeros(tables[key].shape, kept.dtype)
            state[key][ids[key]] = kept
        else:
            state[key] = kept
