"""What a server answers: one session for each request, in a real run, a simulation and a prediction alike.

Between two needs of a session nothing else happens at its server; the work of a `Do` may run beside that of others. A
push is known by its worker and its clock. It counts once: a repetition is acknowledged without being decoded, and one
that is refused leaves clock, parameters and memories as they were. So a worker whose clock at the server has moved on
knows that its push was taken, and both halves of a memory agree.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import numpy as np

from minips import seeds
from minips.runtime.codec import Decoder, Encoder
from minips.runtime.config import Config
from minips.runtime.message import Header, Message
from minips.runtime.partition import Layout
from minips.runtime.sessions import Do, Parcel, Session, Until, nothing
from minips.runtime.shard import Outcome, Shard
from minips.runtime.trace import DECODE, ENCODE, UPDATE, Trace
from minips.stage import Frames, Tensors
from minips.stages.aggregators import Contribution

PUSHES, PULLS, KINDS = ("push", "push_pull"), ("pull", "push_pull"), ("hello", "alive", "bye")


_NO_LOCK = nullcontext()


class WorkerLink:
    """What a server keeps for one worker: both halves of the codec's link, and whether a push is being taken."""

    def __init__(self, config: Config, index: int, worker: int, trace: Trace) -> None:
        self._config, self._trace = config, trace
        self._rng = seeds.pull(config.seed, index, worker)
        self.decoder, self.encoder = Decoder(trace), Encoder(config.pull, self._rng, trace)
        self.pushing, self.queued = False, 0

    def meet(self, again: bool) -> None:
        """The worker says hello on a new connection, and has forgotten any earlier one.

        ``again``: it has lost the connection alone, and what it pushes goes on where it was. What it pulls does not:
        the last answer may not have arrived.
        """
        self.encoder = Encoder(self._config.pull, self._rng, self._trace)
        if not again:
            self.decoder = Decoder(self._trace)


class ServerSession:
    """The requests to one server. ``answer`` is the session of one of them.

    ``layout`` is this server's part of the parameters. ``updated()`` is called once the time of an update is over, and
    ``changed()`` when sessions that wait may go on. ``encoding`` is held around the encoding of an
    answer that several workers share.
    """

    def __init__(
        self,
        shard: Shard,
        config: Config,
        index: int,
        layout: dict[str, Layout],
        trace: Trace,
        changed: Callable[[], None],
        updated: Callable[[], None],
        silence_s: float,
        encoding: AbstractContextManager[Any] = _NO_LOCK,
    ) -> None:
        self.shard, self.config, self.layout, self._changed, self._encoding = shard, config, layout, changed, encoding
        self._updated = updated
        self.values: float = sum(part.stop - part.start for part in layout.values())
        """Values of this server's parameters: what the time of a step of the way depends on."""
        self.links = [WorkerLink(config, index, worker, trace) for worker in range(config.workers)]
        self._hello = {
            "layout": {name: list(part) for name, part in layout.items()},
            "index": index,
            "servers": config.servers,
            "silence_s": silence_s,
        }
        self._encoder = Encoder(config.pull, seeds.shared_pull(config.seed, index), trace)
        self._encoded: tuple[tuple[Any, ...], Frames] = (), []
        self._last_encoded = -1

    def answer(self, header: Header, parcel: Parcel) -> Session[tuple[Header, Parcel]]:
        """One request, in the words of PROTOCOL.md. Returns what the envelope tells this worker alone, and the answer's
        other frames.
        """
        kind, worker = header.get("kind"), self.shard.known(header.get("worker"))
        link, shard = self.links[worker], self.shard
        outcome: Outcome | None = None
        says: Header = {}
        if kind == "hello":
            shard.join(worker)
            link.meet(bool(header.get("again")))
            says = self._hello
        elif kind == "bye":
            self.leave(worker)
        elif kind not in (*PUSHES, *PULLS, *KINDS):
            raise ValueError(
                f"There is no message of kind {kind!r}; there are hello, push, pull, push_pull, alive and bye."
            )
        encoder = link.encoder  # this connection's: a request over an earlier one does not change what is remembered
        if kind in PUSHES:
            outcome = yield from self._push(worker, header, parcel)
        version, fresh = shard.version, False
        params: Tensors = {}
        if kind in PULLS:
            if kind == "pull":
                yield Do(("transfer",), self.values, nothing)
            try:
                yield Until(lambda: shard.may_pull(worker), worker)
            except (TimeoutError, RuntimeError) as error:
                if outcome is None:
                    raise
                raise type(error)(
                    f"{error} The push was taken, with the outcome {outcome!r}: do not push it again."
                ) from None
            version, params = self.read(worker)
            params = self._chosen(header, params)
            fresh = self._last_encoded != version or not self.config.pull.memory.stateless
            self._last_encoded = version
        message = Message({"kind": "reply", "version": version, **says}, params)
        stamp = {"clock": shard.clocks[worker], "done": shard.done, "outcome": outcome}
        spans = (*ENCODE, "transfer") if fresh else ("transfer",)
        encode = partial(self.encode, message, encoder, bool(params) and not header.get("rows"))
        return stamp, (yield Do(spans, self.values, encode))

    def leave(self, worker: int) -> None:
        """A worker is gone, with or without a goodbye."""
        self.shard.leave(worker)
        self._changed()

    def read(self, worker: int) -> tuple[int, Tensors]:
        """The version and the parameters that a pull is answered with."""
        return self.shard.version, self.shard.pull(worker)

    def _push(self, worker: int, header: Header, parcel: Parcel) -> Session[Outcome]:
        """Take a push, once. An earlier connection may have brought the same one and still be at it."""
        shard, link, clock = self.shard, self.links[worker], _integer(header, "clock")
        if link.pushing:
            link.queued += 1
            yield Until(lambda: not link.pushing, worker)
            link.queued -= 1
        if not shard.is_new(worker, clock):
            return shard.repeated(worker, clock)
        link.pushing, decoder = True, link.decoder
        mark, taken = decoder.mark(), False
        try:
            yield Until(lambda: shard.may_push(clock), worker)
            gradients = yield Do(("transfer", *DECODE), self.values, partial(self.decode, parcel, decoder))
            loss = header.get("loss")
            loss = float(loss) if isinstance(loss, int | float) else float("nan")
            before = shard.version
            contribution = Contribution(worker, clock, _integer(header, "version"), gradients, loss)
            outcome, taken = shard.push(contribution, checked=True), True
            if shard.version > before:
                yield Do(UPDATE, self.values, self._updated, alone=True)
        finally:
            if not taken:
                decoder.go_back(mark)
            link.pushing = False
            if link.queued:
                self._changed()
        if outcome != "held":  # which changes nothing for those that wait
            self._changed()
        return outcome

    def decode(self, packet: Any, decoder: Decoder) -> Tensors:
        """The gradients of a push. ValueError where they are none of these parameters, or not finite."""
        gradients = decoder.decode(packet).tensors
        self.shard.check(gradients)
        return gradients

    def encode(self, message: Message, encoder: Encoder, shared: bool) -> Parcel:
        """The frames of an answer, without an envelope: ``shared`` by all that ask for one version of the same whole
        tensors, where the codec remembers nothing.

        Frames that are the parameters' own memory are not kept: while they are, an update goes to new arrays.
        """
        if not shared or not self.config.pull.memory.stateless:
            mark = encoder.mark()
            try:
                return encoder.encode(message)[1:]
            except BaseException:
                encoder.go_back(mark)
                raise
        with self._encoding:
            asked = message.header["version"], *message.tensors
            if asked == self._encoded[0]:
                return self._encoded[1]
            frames = self._encoder.encode(message)[1:]
            own = any(isinstance(frame, memoryview) and frame.readonly for frame in frames)
            self._encoded = ((), []) if own else (asked, frames)
            return frames

    def _chosen(self, header: Header, params: Tensors) -> Tensors:
        """The tensors that a pull asks for, and of those in ``rows`` what this server has of these rows."""
        names, rows = header.get("names"), header.get("rows")
        if names is None and not rows:
            return params
        rows = rows or {}
        if not isinstance(names, list | None) or not isinstance(rows, dict):
            raise ValueError(f"A pull takes a list of names and a map of rows; got {names!r} and {rows!r}.")
        for name in (*(names or ()), *rows):
            if name not in params:
                raise ValueError(f"There is no tensor {name!r} here; there are {', '.join(params)}.")
        if rows and not self.config.pull.memory.stateless:
            raise ValueError(f"{self.config.pull.memory!r} remembers whole tensors: rows cannot be pulled through it.")
        chosen = params if names is None else {name: params[name] for name in names}
        return {
            name: x if name not in rows else np.asarray(x).reshape(-1)[self.layout[name].rows(rows[name])[1]]
            for name, x in chosen.items()
        }


def _integer(header: Header, key: str) -> int:
    value = header.get(key)
    if not isinstance(value, int):
        raise ValueError(f"The header of a push needs a whole number under {key!r}; got {value!r}.")
    return value
