"""A parameter server: a transport and its threads around one shard.

Each connection has a thread. It decodes what came in, takes the one lock to ask the shard or to tell it something,
waits on the one condition while the shard says not yet, and encodes the answer after it has let the lock go.
"""

import reprlib
import secrets
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Self

from minips import seeds
from minips.runtime.codec import Decoder, Encoder, envelope, unpack
from minips.runtime.config import Config, check_seconds
from minips.runtime.message import Header, Message
from minips.runtime.partition import cut, native, partition
from minips.runtime.shard import Shard
from minips.runtime.trace import Laps, Trace
from minips.stage import Array, Frames, Tensors
from minips.stages.aggregators import Contribution
from minips.stages.serializers import Packet
from minips.stages.transports import Endpoint
from minips.stages.transports.auth import check_token
from minips.stages.transports.wire import Closable

GRACE_S = 0.25
"""How long a worker whose connection broke may take to come back before it no longer counts."""
KEPT_ROWS = 10_000
"""How many losses, grants and events, the last ones, a server without an end keeps at least; it keeps twice as many at
most."""


class Server(Closable):
    """Holds parameters, applies what workers push, answers their pulls.

    ``params`` are all the parameters, arrays of floating-point numbers by name; of several servers (``config.servers``)
    this one is number ``index`` and keeps its part. ``updates`` is how many applied pushes end the run, None for as
    long as it is served: of what is recorded then, the last rows alone are kept. A worker that says nothing for
    ``silence_s`` seconds no longer counts.

    TypeError or ValueError for any of them that could not work.

    >>> import numpy as np
    >>> import minips as ps
    >>> config = ps.Config(transport="inproc", consistency="asp", workers=1, optimizer=ps.SGD(lr=0.5))
    >>> with Server({"w": np.zeros(2)}, config).serve() as server:
    ...     with ps.connect(server.address, config, token=server.token) as client:
    ...         client.push_pull({"w": np.array([1.0, -1.0])}).result()["w"]
    array([-0.5,  0.5])
    """

    def __init__(
        self,
        params: Mapping[str, Array],
        config: Config,
        *,
        index: int = 0,
        updates: int | None = None,
        silence_s: float = 30.0,
    ) -> None:
        if not isinstance(config, Config):
            raise TypeError(f"Server takes the Config that its clients have; got {config!r}.")
        if not isinstance(index, int) or not 0 <= index < config.servers:
            raise ValueError(
                f"Config.servers is {config.servers}, so index is 0 to {config.servers - 1}; got {index!r}."
            )
        if updates is not None and not (isinstance(updates, int) and updates > 0):
            raise ValueError(
                f"updates is how many pushes end the run, at least 1, or None for as long as the server is open; "
                f"got {updates!r}."
            )
        check_seconds("silence_s", silence_s)
        whole = _parameters(params)
        self.config, self.index, self.silence_s = config, index, silence_s
        self.layout = partition(whole, config.servers)[index]
        self.trace = Trace(f"server {index}")
        self._laps = Laps(self.trace)
        self.shard = Shard(
            cut(whole, self.layout),
            workers=config.workers,
            aggregator=config.aggregator,
            consistency=config.consistency,
            optimizer=config.optimizer,
            updates=updates,
            span=self._laps.span,
        )
        self.losses: list[tuple[float, int, float]] = []
        self.changed_at = time.monotonic()
        self.events: list[tuple[float, str]] = []
        self.address, self.token = "", ""
        self._version = 0
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._encoding = threading.Lock()
        self._encoder = Encoder(config.pull, seeds.shared_pull(config.seed, index), self.trace)
        self._encoded: tuple[tuple[Any, ...], Frames] = (), []
        self._links = [_WorkerLink(config, index, worker, self.trace) for worker in range(config.workers)]
        self._endpoint: Endpoint | None = None
        self._watcher: threading.Thread | None = None

    def serve(self, address: str | None = None, token: str | None = None) -> Self:
        """Start answering at ``address`` (None: a fresh local one). A ``token`` is made where none is given. Use with
        ``with``.

        OSError where the address cannot be had; ValueError or TypeError for what is no address, or no token.
        """
        if not isinstance(address, str | None):
            raise TypeError(
                f"serve takes an address, such as tcp://127.0.0.1:0, or None for a fresh local one; got {address!r}."
            )
        if token is not None:
            check_token(token)
        self.token = secrets.token_hex(16) if token is None else token
        self._endpoint = self.config.node().serve(self._handle, address, self.token, self._connection_closed)
        self.address = self._endpoint.address
        self._watcher = threading.Thread(target=self._watch, name=f"minips-watch-{self.index}", daemon=True)
        self._watcher.start()
        return self

    @property
    def params(self) -> Tensors:
        """A copy of this server's parameters as they are now."""
        with self._changed:
            params = self.shard.params
        return {name: x.copy() for name, x in params.items()}

    @property
    def diverged(self) -> str | None:
        """Why the run has ended before its updates were applied."""
        return self.shard.diverged

    def diverge(self, reason: str) -> None:
        """End the run with the parameters as they are: every push is answered with ``over``, every pull at once."""
        with self._changed:
            self.shard.diverge(reason)
            self._changed.notify_all()

    def report(self) -> dict[str, Any]:
        """What a run keeps of this server."""
        shard = self.shard
        counts = {"applied": shard.applied, "late": shard.late, "staleness": shard.staleness, "grants": shard.grants}
        times = {"losses": self.losses, "changed_at": self.changed_at, "events": self.events, "trace": self.trace}
        return {"params": self.params, "layout": self.layout, **counts, **times}

    def close(self) -> None:
        """Wake whoever waits, hang up on everybody, let the address go."""
        self._closing.set()
        with self._changed:
            self._changed.notify_all()
        if self._endpoint:
            self._endpoint.close()
        if self._watcher:
            self._watcher.join()

    def _handle(self, frames: Frames) -> Frames:
        began = time.monotonic()
        clock = _Stopwatch()
        packet, _ = unpack(frames, self.config.push, self.trace)
        kind, worker = packet.header.get("kind"), self.shard.known(packet.header.get("worker"))
        link = self._links[worker]
        link.heard, link.busy = began, True
        try:
            answer, stamp = self._answer(str(kind), worker, packet, link, clock)
            encoded = self._encode(answer, link, bool(answer.tensors) and not packet.header.get("rows"))
            times = {"busy": time.monotonic() - began - clock.seconds, "waited": clock.seconds}
            return [envelope(self.config.pull, {**stamp, **times}), *encoded]
        finally:
            link.heard, link.busy = time.monotonic(), False

    def _answer(
        self, kind: str, worker: int, packet: Packet, link: "_WorkerLink", clock: "_Stopwatch"
    ) -> tuple[Message, Header]:
        """The answer, the same for all that ask for this version, and what is said to this worker alone."""
        outcome: str | None = None
        params: Tensors = {}
        extra: dict[str, Any] = {}
        if kind == "hello":
            with self._changed:
                self.shard.join(worker)
            link.meet(again=bool(packet.header.get("again")))
            layout = {name: list(part) for name, part in self.layout.items()}
            extra = {"layout": layout, "index": self.index, "servers": self.config.servers, "silence_s": self.silence_s}
        elif kind == "bye":
            link.connections.discard(threading.get_ident())
            self._leave(worker, None)
        elif kind not in ("push", "pull", "push_pull", "alive"):
            raise ValueError(
                f"There is no message of kind {kind!r}; there are hello, push, pull, push_pull, alive and bye."
            )
        if kind in ("push", "push_pull"):
            outcome = self._push(worker, packet, link, clock)
        with self._changed:
            if kind in ("pull", "push_pull"):
                self._wait(lambda: self.shard.may_pull(worker), worker, clock)
                params = self._chosen(packet.header, self.shard.pull(worker))
                self._forget()
            header = {"kind": "reply", "version": self.shard.version, **extra}
            stamp = {"clock": self.shard.clocks[worker], "done": self.shard.done, "outcome": outcome}
        return Message(header, params), stamp

    def _encode(self, answer: Message, link: "_WorkerLink", whole: bool) -> Frames:
        """The frames of an answer without an envelope: for all who ask for one version of the same ``whole`` tensors,
        once.

        Frames that are the parameters' own memory are not kept: while they are, an update goes to a copy.
        """
        if not whole or not self.config.pull.memory.stateless:
            return link.encoder.encode(answer)[1:]
        with self._encoding:
            asked = answer.header["version"], *answer.tensors
            if asked == self._encoded[0]:
                return self._encoded[1]
            frames = self._encoder.encode(answer)[1:]
            own = any(isinstance(frame, memoryview) and frame.readonly for frame in frames)
            self._encoded = ((), []) if own else (asked, frames)
            return frames

    def _push(self, worker: int, packet: Packet, link: "_WorkerLink", clock: "_Stopwatch") -> str:
        if not link.pushing.acquire(timeout=self.config.timeout_s):
            raise TimeoutError(f"Worker {worker}'s push over an earlier connection has not come to an end.")
        try:  # one at a time: over an old connection and a new one the same push may come twice
            return self._take(worker, packet, link, clock)
        finally:
            link.pushing.release()

    def _take(self, worker: int, packet: Packet, link: "_WorkerLink", clock: "_Stopwatch") -> str:
        at = _integer(packet, "clock")
        with self._changed:
            if outcome := self.shard.known_outcome(worker, at):
                return outcome
            self._wait(lambda: self.shard.may_push(at), worker, clock)
        message = link.decoder.decode(packet)
        self.shard.check(message.tensors)
        loss = packet.header.get("loss")
        loss = float(loss) if isinstance(loss, int | float) else float("nan")
        contribution = Contribution(worker, at, _integer(packet, "version"), message.tensors, loss)
        with self._changed:
            self.trace.step = at
            outcome = self.shard.push(contribution, checked=True)
            self._laps.record()
            self._note()
            if outcome != "held":  # which changes nothing for those who wait
                self._changed.notify_all()
        return outcome

    def _wait(self, ready: Any, worker: int, clock: "_Stopwatch") -> None:
        """Wait, with the lock held, until ``ready()``. TimeoutError names who is waited for."""
        if ready():
            return
        with clock:
            came = self._changed.wait_for(
                lambda: ready() or self._closing.is_set() or self.shard.stuck, self.config.timeout_s
            )
        if not came:
            shard = self.shard
            behind = [w for w in sorted(shard.live) if w != worker and shard.clocks[w] <= shard.slowest()]
            raise TimeoutError(
                f"Worker {worker} at clock {shard.clocks[worker]} waited {self.config.timeout_s:g} seconds for "
                f"{', '.join(f'worker {w}' for w in behind) or 'the others'} at clock {shard.slowest()}. "
                "Are they running? Config.timeout_s sets how long to wait."
            )
        if self._closing.is_set():
            raise ConnectionError("The server is closing.")
        if self.shard.stuck and not ready():
            raise RuntimeError(self.shard.stuck)

    def _chosen(self, header: Header, params: Tensors) -> Tensors:
        """The tensors that a pull asks for, and of those in ``rows`` what this server has of these rows."""
        names, rows = header.get("names"), header.get("rows") or {}
        if not isinstance(names, list | None) or not isinstance(rows, dict):
            raise ValueError(f"A pull takes a list of names and a map of rows; got {names!r} and {rows!r}.")
        for name in (*(names or ()), *rows):
            if name not in params:
                raise ValueError(f"There is no tensor {name!r} here; there are {', '.join(params)}.")
        if rows and not self.config.pull.memory.stateless:
            raise ValueError(f"{self.config.pull.memory!r} remembers whole tensors: rows cannot be pulled through it.")
        chosen = params if names is None else {name: params[name] for name in names}
        return {
            name: x if name not in rows else x.reshape(-1)[self.layout[name].rows(rows[name])[1]]
            for name, x in chosen.items()
        }

    def _note(self) -> None:
        """Stamp what the shard has just recorded with the time, which it does not know."""
        now = time.monotonic()
        rows, self.shard.losses = self.shard.losses, []
        self.losses += [(now, step, loss) for step, loss in rows]
        self._forget()
        if self.shard.version > self._version:
            self._version, self.changed_at = self.shard.version, now

    def _forget(self) -> None:
        """Let go of the oldest rows, where no end of the run bounds them."""
        recorded: tuple[list[Any], ...] = (self.losses, self.shard.grants, self.events)
        for rows in recorded if self.shard.updates is None else ():
            if len(rows) >= 2 * KEPT_ROWS:
                del rows[:-KEPT_ROWS]

    def _connection_closed(self) -> None:
        for worker, link in enumerate(self._links):
            if threading.get_ident() in link.connections:
                link.connections.discard(threading.get_ident())
                if not link.connections and not self._closing.wait(GRACE_S) and not link.connections:
                    self._leave(worker, f"worker {worker} is gone: its connection closed without a goodbye")

    def _leave(self, worker: int, event: str | None) -> None:
        with self._changed:
            if event and worker in self.shard.live and not self.shard.done and not self._closing.is_set():
                self.events.append((time.monotonic(), event))
            with suppress(ValueError):
                self.shard.leave(worker)
            self._note()
            self._changed.notify_all()

    def _watch(self) -> None:
        """Let go of workers that hold a connection and have fallen silent."""
        while not self._closing.wait(self.silence_s / 4):
            for worker, link in enumerate(self._links):
                silent = time.monotonic() - link.heard
                if link.connections and not link.busy and silent > self.silence_s and worker in self.shard.live:
                    self._leave(worker, f"worker {worker} has been silent for {silent:.1f} s: it no longer counts")


def _parameters(params: object) -> Tensors:
    """Named arrays that a gradient can move. TypeError or ValueError where they are none."""
    if not isinstance(params, Mapping) or not all(isinstance(name, str) for name in params):
        raise TypeError(
            'Server takes its parameters as a mapping of names to arrays, such as {"w": np.zeros(3)}; '
            f"got {reprlib.repr(params)}."
        )
    whole = {name: native(x) for name, x in params.items()}
    for name, x in whole.items():
        if x.dtype.kind != "f":
            raise ValueError(
                f"The parameter {name!r} must hold floating-point numbers; got {x.dtype}. "
                "Convert it, for example with .astype(np.float32)."
            )
    return whole


class _WorkerLink:
    """What the server keeps for one worker: both halves of the codec's link, its connections, by the threads that serve
    them, and when it was last heard.
    """

    def __init__(self, config: Config, index: int, worker: int, trace: Trace) -> None:
        self._codec, self._trace = config.pull, trace
        self._rng = seeds.pull(config.seed, index, worker)
        self.connections: set[int] = set()
        self.busy, self.heard = False, time.monotonic()
        self.pushing = threading.Lock()
        self.decoder, self.encoder = Decoder(trace), Encoder(self._codec, self._rng, trace)

    def meet(self, again: bool) -> None:
        """The worker says hello on this thread's connection.

        It has forgotten any earlier one, and so do we. ``again``: it has only lost it, and what it pushes goes on where
        it was; what it pulls does not, since nobody knows whether the last answer arrived.
        """
        self.connections.add(threading.get_ident())
        self.encoder = Encoder(self._codec, self._rng, self._trace)
        if not again:
            self.decoder = Decoder(self._trace)


class _Stopwatch:
    """Seconds spent inside ``with``, added up."""

    seconds = 0.0

    def __enter__(self) -> None:
        self._began = time.monotonic()

    def __exit__(self, *error: object) -> None:
        self.seconds += time.monotonic() - self._began


def _integer(packet: Packet, key: str) -> int:
    value = packet.header.get(key)
    if not isinstance(value, int):
        raise ValueError(f"The header of a push needs a whole number under {key!r}; got {value!r}.")
    return value
