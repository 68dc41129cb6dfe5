"""Tables: tensors of which a step touches a few rows, which alone travel and change. A run without tables never comes
here.

A worker pushes `Rows` of a table, and pulls rows by their numbers. A server holds a `TablePart`, whole rows, and steps
the touched ones: it gathers them from the table and the optimizer's state into small arrays, lets aggregator and
optimizer work on these as on any tensors, and writes them back in place.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from math import isfinite, prod
from typing import Any, NamedTuple

import numpy as np

from minips.core.parameters import Parameters
from minips.stage import Array, Tensors, is_finite
from minips.stages.aggregators import Aggregator, Contribution
from minips.stages.optimizers import Optimizer


class Rows(NamedTuple):
    """The gradient of some rows of a table: their numbers, whole numbers in any order, of shape (k,), and their values,
    of shape (k, …). The values of a number that is there more than once are added up, in order.

    >>> Rows([7, 2, 7], np.float32([[1], [2], [3]])).summed()
    Rows(ids=array([2, 7]), values=array([[2.],
           [4.]], dtype=float32))
    """

    ids: Any
    values: Array

    def summed(self) -> "Rows":
        """These rows with each number once, ascending."""
        ids, values = np.asarray(self.ids), np.asarray(self.values)
        if (ids[1:] > ids[:-1]).all():
            return Rows(ids, values)
        once, places = np.unique(ids, return_inverse=True)
        total = np.zeros((len(once), *values.shape[1:]), values.dtype)
        np.add.at(total, places, values)
        return Rows(once, total)

    def __add__(self, other: "Rows") -> "Rows":  # type: ignore[override]  # the sum of gradients, not of tuples
        return Rows(*map(np.concatenate, zip(self.summed(), other.summed(), strict=True)))

    def __truediv__(self, by: float) -> "Rows":
        ids, values = self.summed()
        return Rows(ids, values / by)


def row_numbers(given: Any, shape: tuple[int, ...]) -> Array:
    """These rows of a tensor of this shape as an array. ValueError where they are no list of whole numbers, or where
    there are no such rows.
    """
    ids = np.asarray(given)
    if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
        raise ValueError(f"Rows are a list of whole numbers, which np.flatnonzero makes of a mask; got {given!r}.")
    count = shape[0] if shape else 0
    if ids.size and not 0 <= ids.min() <= ids.max() < count:
        first = ", ".join(map(str, ids[:8].tolist())) + ", …" * (len(ids) > 8)
        raise ValueError(f"A tensor of shape {shape} has the rows 0 to {count - 1}; got {first}.")
    return ids.astype(np.intp, copy=False)


class TablePart(NamedTuple):
    """A table's shape and dtype, and the rows that one server holds: each ``step``-th from ``start`` to ``stop``. It
    stands in the place of a `Layout`.
    """

    shape: tuple[int, ...]
    dtype: str
    start: int
    stop: int
    step: int

    @property
    def whole(self) -> bool:
        """False: its rows are cut out and joined even where one server holds them all."""
        return False

    @property
    def size(self) -> int:
        """Values of the whole table."""
        return prod(self.shape)

    @property
    def values(self) -> int:
        """Values here."""
        return len(range(self.start, self.stop, self.step)) * prod(self.shape[1:])

    def rows(self, rows: Any) -> tuple[Array, Array]:
        """The mask of those of these rows that are on this server, and their places here. ValueError where there are
        no such rows.
        """
        ids = row_numbers(rows, self.shape)
        here = (ids >= self.start) & (ids < self.stop)
        if self.step > 1:
            here &= ids % self.step == self.start
        return here, (ids[here] - self.start) // self.step

    def asked(self, rows: Any) -> list[int]:
        """Those of these rows that are on this server."""
        ids = np.asarray(rows, np.intp)
        return ids[self.rows(ids)[0]].tolist()  # type: ignore[no-any-return]

    def cut(self, x: Any) -> Any:
        """This server's rows of the whole table, as a view, or its part of some `Rows`."""
        if not isinstance(x, Rows):
            return x[self.start : self.stop : self.step]
        here, _ = self.rows(x.ids)
        return Rows(x.ids[here], x.values[here])

    def take(self, piece: Array, rows: Any) -> Array:
        """Those of these rows that are on this server, from its ``piece``."""
        taken: Array = piece[self.rows(rows)[1]]
        return taken

    def put(self, whole: Array, piece: Array, rows: Any) -> None:
        """Write this server's ``piece`` into the whole table or, of the wanted ``rows``, into their array."""
        where = slice(self.start, self.stop, self.step) if rows is None else self.rows(rows)[0]
        whole[where] = piece


class TableParameters(Parameters):
    """Parameters of which those named are tables. A contribution's gradient of a table is `Rows` of places here, each
    once, ascending.
    """

    def __init__(
        self,
        names: Collection[str],
        params: Mapping[str, Array],
        aggregator: Aggregator,
        optimizer: Optimizer,
        now: Callable[[], float],
    ) -> None:
        dense = {name: x for name, x in params.items() if name not in names}
        super().__init__(dense, aggregator, optimizer, now)
        self._names = [*params]
        self._tables = Parameters({name: params[name] for name in params if name in names}, aggregator, optimizer, now)
        self._dense = bool(dense)
        self.states += [{} for _ in self._tables.arrays]

    def lend(self) -> Tensors:
        lent = super().lend() | self._tables.lend()
        return {name: lent[name] for name in self._names}

    def update(self, contributions: Sequence[Contribution], scale: float, clock: int = 0) -> str | None:
        """As `Parameters.update`; of a table, only the rows that any contribution has touched take part."""
        began, aggregating, applying = self._now(), 0.0, 0.0
        stepped: dict[str, Rows] = {}
        states = self.states[len(self._blocks) :]
        for (name, table), state in zip(self._tables.arrays.items(), states, strict=True):
            start = self._now()
            pushed = [Rows(*one.gradients[name]) for one in contributions]
            ids = pushed[0].ids if len(pushed) == 1 else np.unique(np.concatenate([rows.ids for rows in pushed]))
            pieces = []
            for one, rows in zip(contributions, pushed, strict=True):
                g = rows.values
                if len(pushed) > 1:
                    g = np.zeros((len(ids), *table.shape[1:]), table.dtype)
                    g[np.searchsorted(ids, rows.ids)] = rows.values
                pieces.append(one._replace(gradients={name: g}))
            old, near = {name: table[ids]}, _gathered(state, table.shape, ids)
            new = {name: np.empty_like(old[name])}
            near["clock"] = clock
            with np.errstate(over="ignore", invalid="ignore"):
                gradients = self.aggregator.combine(pieces)
                aggregated = self._now()
                if scale != 1.0:
                    gradients = {name: np.asarray(gradients[name] * scale)}
                self.optimizer.step_into(new, old, gradients, near)
                finite = isfinite(np.vdot(new[name], new[name]))
            if not finite and not is_finite(new[name]):
                return name
            _scatter(near, state, table.shape, ids)
            stepped[name] = Rows(ids, new[name])
            aggregating, applying = aggregating + aggregated - start, applying + self._now() - aggregated
        if self._dense:
            rest = [
                one._replace(gradients={name: one.gradients[name] for name in self.arrays}) for one in contributions
            ]
            if (lost := super().update(rest, scale, clock)) is not None:
                return lost
            aggregating, applying = aggregating + self.times[1], applying + self.times[2]
        for name, (ids, values) in stepped.items():
            self._writable(name)[ids] = values
        self.times = began, aggregating, applying
        return None

    def _writable(self, name: str) -> Array:
        """The table, of which no reader holds any view: a copy in its place where one does."""
        arrays, loans = self._tables.arrays, self._tables._loans
        if name in loans and loans.pop(name)() is not None:
            arrays[name] = arrays[name].copy()
        return arrays[name]


def _gathered(state: Mapping[str, Any], shape: tuple[int, ...], ids: Array) -> dict[str, Any]:
    """An optimizer's state of these rows: of each array that is shaped like the table its rows, all else as it is."""
    near: dict[str, Any] = {}
    for key, kept in state.items():
        if isinstance(kept, dict):
            kept = _gathered(kept, shape, ids)
        near[key] = kept[ids] if isinstance(kept, np.ndarray) and kept.shape == shape else kept
    return near


def _scatter(near: Mapping[str, Any], state: dict[str, Any], shape: tuple[int, ...], ids: Array) -> None:
    """Write these rows' state back; an array of rows that is new begins as zeros at all others."""
    for key, kept in near.items():
        if isinstance(kept, dict):
            _scatter(kept, state.setdefault(key, {}), shape, ids)
        elif isinstance(kept, np.ndarray) and kept.shape == (len(ids), *shape[1:]):
            if key not in state:
                state[key] = np.zeros(shape, kept.dtype)
            state[key][ids] = kept
        else:
            state[key] = kept
