"""The protocol's fields and checks for tables (`minips.core.rows`). A run without tables never uses this module.

The header of a push of rows contains ``of``, the row numbers by table; the rows' values replace the whole tensor. In a
push_pull, as in a pull, ``rows`` in the header names the rows to pull. Each server is told only its own rows.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from minips.core.codec import Codec, Decoder
from minips.core.limits import check_rows_asked
from minips.core.message import Header, Message
from minips.core.partition import Layout, Layouts
from minips.core.rows import Rows, TableParameters, TablePart, row_numbers, take
from minips.core.sessions import Session
from minips.core.shard import Shard, check_gradients
from minips.stage import Array, Tensors, default_stage
from minips.stages.serializers.wellformed import quote

Wanted = Mapping[str, Any] | None
"""Maps a tensor's name to row numbers."""
Tables = Mapping[str, TablePart]
Gradients = Mapping[str, Array | Rows]
"""Maps a tensor's name to its gradient; for a table, to `Rows`."""


def layout_of(told: Mapping[str, Sequence[Any]]) -> dict[str, Layout | TablePart]:
    """Read a layout from the lists in the answer to hello; a table's list is one number longer than a tensor's."""
    parts = [(name, tuple(shape), *rest) for name, (shape, *rest) in told.items()]
    return {name: (TablePart if len(rest) > 4 else Layout)(*rest) for name, *rest in parts}


def tables_of(layout: Layouts) -> dict[str, TablePart]:
    """The tables in a layout."""
    return {name: part for name, part in layout.items() if isinstance(part, TablePart)}


def rows_pushed(shard: Shard) -> int | None:
    """The number of table rows that a shard has received in pushes; None if there are no tables."""
    return shard.parameters.rows_pushed if isinstance(shard.parameters, TableParameters) else None


def check_rows(gradients: Mapping[str, Any], like: Tensors, tables: Tables) -> dict[str, Any]:
    """As `check_gradients`; also adds up repeated rows of these ``tables``. ValueError for rows that do not exist, for
    values of another width or dtype, and for a table pushed whole or a dense tensor pushed by rows.
    """
    numbers, shaped, values = {}, {**like}, {**gradients}
    for name, part in tables.items():
        if not isinstance(gradients.get(name), Rows):
            raise ValueError(f"{name!r} is a table: push its touched rows, as {{{name!r}: ps.Rows(ids, values)}}.")
        ids = numbers[name] = row_numbers(gradients[name].ids, part.shape, name)
        shaped[name], values[name] = np.empty((len(ids), *part.shape[1:]), part.dtype), gradients[name].values
    ready: dict[str, Any] = check_gradients(values, shaped)
    return ready | {name: Rows(ids, ready[name]).summed() for name, ids in numbers.items()}


def wanted_rows(names: Collection[str], rows: Wanted, like: Tensors) -> dict[str, list[int]]:
    """The rows of a pull, as lists. ValueError if these names or rows do not exist."""
    if not isinstance(rows, Mapping | None):
        raise TypeError(f"pull takes rows as a mapping, such as {{'w': [0, 2]}}; got {rows!r}.")
    for name in (*names, *(rows or ())):
        if name not in like:
            raise ValueError(f"There is no tensor {name!r} on the servers; there are {', '.join(like)}.")
    return {name: row_numbers(ids, like[name].shape, name).tolist() for name, ids in (rows or {}).items()}


def rows_read(needed: Any, tables: Collection[str], like: Mapping[str, Array]) -> dict[str, Array]:
    """The rows of each table that a problem's ``rows_needed`` returned for a batch, as arrays. ValueError if a table is
    missing, or if rows do not exist.
    """
    if not isinstance(needed, Mapping) or not needed.keys() >= {*tables}:
        words = "rows_needed gives the rows of each table, as in"
        raise ValueError(f"{words} {{{next(iter(tables))!r}: [0, 2]}}; got {quote(needed)}.")
    return {name: row_numbers(needed[name], like[name].shape, name) for name in tables}


def add_row_numbers(message: Message, layout: Layouts, rows: Wanted) -> Message:
    """Add the numbers of a push's rows, and of the ``rows`` that it pulls from this server, to its header."""
    header = message.header
    pushed: dict[str, Any] = {name: g for name, g in message.tensors.items() if isinstance(g, Rows)}
    if pushed:
        header["of"] = {name: g.ids.tolist() for name, g in pushed.items()}
        message.tensors |= {name: g.values for name, g in pushed.items()}
    if rows:
        header["rows"] = rows_at(rows, layout)
    return message


def rows_at(rows: Mapping[str, Any], layout: Layouts) -> dict[str, Any]:
    """The rows to request from a server: only its own rows of a table; all rows of another tensor, which it cuts."""
    tables = tables_of(layout)
    own = {name: np.asarray(ids)[tables[name].rows(ids)[0]].tolist() for name, ids in rows.items() if name in tables}
    return {name: ids for name, ids in rows.items() if name in layout} | own


def decode_rows(message: Any, decoder: Decoder, params: Tensors, tables: Tables) -> dict[str, Any]:
    """The gradients of a push to these parts of tables, with the rows' indices in the parts. Checks the numbers, then
    decodes the values. ValueError as in `check_rows`, and also if rows are on another server, or if a memory has
    changed them.
    """
    of = message.header.get("of") or {}
    if not tables:
        raise ValueError(f"This server has no tables, so a push may not name rows ('of'); got {quote([*of])}.")
    stateless = default_stage("memory", message.header.get("memory", "none")).stateless
    if not isinstance(of, dict) or not of.keys() <= tables.keys() or not stateless:
        raise ValueError(f"A push of rows gives their numbers in 'of', for {', '.join(tables)}, and has no memory.")
    like = dict(params)
    for name, part in tables.items():
        count = len(row_numbers(of[name], part.shape, name)) if name in of else part.shape[0]
        like[name] = np.broadcast_to(np.empty((), part.dtype), (count, *part.shape[1:]))
    tensors = decoder.decode(message, like).tensors
    pushed = {name: Rows(of[name], g) if name in of else g for name, g in tensors.items()}
    ready = check_rows(pushed, params, tables)
    for name, part in tables.items():
        here, places = part.rows(ready[name].ids)
        if not here.all():
            raise ValueError(f"Row {ready[name].ids[~here][0]} of {name!r} is on another server.")
        ready[name] = Rows(places, ready[name].values)
    return ready


def select_tensors(header: Header, params: Tensors, layout: Layouts, codec: Codec) -> Tensors:
    """The tensors that a pull names; from a tensor in ``rows``, only this server's part of those rows."""
    names, rows = header.get("names"), header.get("rows")
    if names is None and not rows:
        return params
    rows = rows or {}
    for name in (*(names or ()), *rows):
        if not isinstance(name, str) or name not in params:
            raise ValueError(f"There is no tensor {quote(name)} here; there are {', '.join(params)}.")
    for name, ids in rows.items():
        check_rows_asked(name, len(row_numbers(ids, layout[name].shape, name)), layout[name].shape)
    if rows and not codec.memory.stateless:
        raise ValueError(f"{codec.memory!r} remembers whole tensors: rows cannot be pulled through it.")
    kept = params if names is None else {name: params[name] for name in names}
    return {name: x if name not in rows else take(layout[name], x, rows[name]) for name, x in kept.items()}


class TableWorker:
    """A worker's side of the protocol for `train_served`. Pulls fetch only the table rows that the next batch reads,
    and write them into the worker's own arrays, which have the full shape and start as zeros.

    ``needs(clock)`` returns the rows of each table that the gradient at that clock reads. With ``overlap``, an answer
    is for the gradient after the next one, and that gradient has its own arrays.
    """

    def __init__(self, worker: Any, needs: Callable[[int], dict[str, Array]], overlap: bool) -> None:
        self.worker, self._needs, self._ahead = worker, needs, 1 + overlap
        self._own = [
            {name: np.zeros(worker.like[name].shape, worker.like[name].dtype) for name in worker.tables}
            for _ in range(self._ahead)
        ]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.worker, name)

    def pull_whole(self) -> Session[Tensors]:
        """Pull the rows for all gradients before the answer to the first push. Returns the parameters."""
        clock = self.worker.clock
        several = [self._needs(later) for later in range(clock, clock + self._ahead)]
        wanted = {name: np.unique(np.concatenate([one[name] for one in several])) for name in several[0]}
        answers = yield from self.worker.pull(rows=wanted)
        if self.worker.clock != clock:  # the worker abandoned a gradient, and now learns its next round
            return (yield from self.pull_whole())
        return self._written(answers, wanted)

    def push_pull(self, loss: float, gradients: Mapping[str, Any], versions: Sequence[int]) -> Session[Tensors]:
        """Push and pull in one message. Returns the parameters. ValueError, immediately, for invalid gradients."""
        ready = check_rows(gradients, self.worker.like, self.worker.tables)
        return self._pushed(float(loss), ready, versions)

    def _pushed(self, loss: float, gradients: dict[str, Any], versions: Sequence[int]) -> Session[Tensors]:
        clock = self.worker.clock
        wanted = self._needs(clock + self._ahead)
        answers = yield from self.worker.push(gradients, loss, versions, True, wanted)
        if self.worker.clock != clock + 1:  # the push was late, and the batch of the next round reads other rows
            return (yield from self.pull_whole())
        return self._written(answers, wanted)

    def _written(self, answers: Sequence[Message], wanted: Mapping[str, Array]) -> Tensors:
        params: Tensors = self.worker.join(answers, wanted)
        own = self._own[0]
        self._own.reverse()
        for name, ids in wanted.items():
            own[name][ids] = params[name]
            params[name] = own[name]
        return params
