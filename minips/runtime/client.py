"""A worker's side: push gradients, pull parameters, over one channel to each server.

Every call returns a future at once. A tensor that is split over several servers goes out in pieces and comes back
whole.
"""

import reprlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np

from minips import seeds
from minips.runtime.codec import Decoder, Encoder, unpack
from minips.runtime.config import Config, check_seconds
from minips.runtime.lasting import PAUSES_S, LastingChannel
from minips.runtime.message import Header, Message, check_finite
from minips.runtime.partition import Layout, cut, join, native
from minips.runtime.trace import Trace
from minips.stage import Array, Frames, Tensors
from minips.stages.transports import Channel
from minips.stages.transports.auth import check_token
from minips.stages.transports.futures import Driven, Joined
from minips.stages.transports.wire import Closable

T = TypeVar("T")


def connect(
    address: str | Sequence[str],
    config: Config | None = None,
    *,
    worker: int = 0,
    token: str = "",
    timeout: float = 10.0,
    trace: Trace | None = None,
    pauses_s: Sequence[float] = PAUSES_S,
) -> "Client":
    """A client of the server at ``address``, or of several servers at their addresses. Use with ``with``.

    A connection that breaks is made again, after each of ``pauses_s`` seconds; a push counts once, whether its
    acknowledgement was lost or not.

    ConnectionError where nobody answers, PermissionError for a wrong token, ValueError where the addresses are not
    those of all the servers of one run; ValueError or TypeError for what is no address, token, worker or time.
    """
    check_token(token)
    check_seconds("timeout", timeout)
    if not isinstance(config, Config | None):
        raise TypeError(f"connect takes the Config that the server has; got {config!r}.")
    if not isinstance(worker, int | np.integer):
        raise TypeError(f"worker is a worker's number, from 0 on; got {worker!r}.")
    return Client(_addresses(address), config or Config(), worker, token, timeout, trace, pauses_s)


def _addresses(address: Any) -> list[str]:
    try:
        listed = [address] if isinstance(address, str) else [*address]
    except TypeError:
        listed = [address]
    if not all(isinstance(one, str) for one in listed):
        raise TypeError(
            "connect takes the server's address, server.address, or a list of all the servers' addresses; "
            f"got {address!r}."
        )
    return listed


@dataclass(frozen=True)
class Ref:
    """A reference to a tensor that lives on the servers: its name, shape and dtype. ``fetch()`` brings its values."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    _client: "Client"

    def fetch(self, rows: Sequence[int] | None = None) -> Array:
        """The values, once the consistency model lets this worker pull; of these rows alone, where they are given."""
        chosen = None if rows is None else {self.name: rows}
        return self._client.pull([self.name], chosen).result()[self.name]

    def __repr__(self) -> str:
        return f"<Ref {self.name!r} {self.dtype}{list(self.shape)}>"


class Client(Closable):
    """One worker's connection to all the servers. Made by `connect`."""

    def __init__(
        self,
        addresses: list[str],
        config: Config,
        worker: int,
        token: str,
        timeout: float,
        trace: Trace | None,
        pauses_s: Sequence[float],
    ) -> None:
        self.config, self.worker = config, int(worker)
        self.trace = trace or Trace(f"worker {worker}")
        self.bytes_sent = self.bytes_received = 0
        self._closing = threading.Event()
        self._servers: list[_Connection] = []
        node = config.node()
        try:
            for address in addresses:
                connect = partial(node.connect, address, token, timeout)
                self._servers.append(_Connection(connect, address, self, len(self._servers), pauses_s))
            hellos = [server.call(Message({"kind": "hello", "worker": self.worker})) for server in self._servers]
            self._meet([hello.result(timeout) for hello in hellos])
        except BaseException:
            self._hang_up()
            raise
        self._heart = threading.Thread(target=self._beat, name=f"minips-heart-{worker}", daemon=True)
        self._heart.start()

    @property
    def done(self) -> bool:
        """True once every server has said that the run is over."""
        return all(server.done for server in self._servers)

    @property
    def clock(self) -> int:
        """This worker's completed pushes.

        Each server counts by itself: with backup workers a push can be late at one and in time at another. This is the
        furthest.
        """
        return max(server.clock for server in self._servers)

    @property
    def versions(self) -> tuple[int, ...]:
        """The version of each server's parameters that was pulled last."""
        return tuple(server.version for server in self._servers)

    def push(
        self, gradients: Mapping[str, Array], *, loss: float | None = None, versions: tuple[int, ...] | None = None
    ) -> "Future[str]":
        """Send gradients; the future holds what became of them: applied, held (until the round is complete), late or
        over.

        ``loss`` is the training loss that belongs to them, ``versions`` what they were computed from (None: what was
        pulled last). ValueError where names, shapes or dtypes are not those of the parameters, or a value is NaN or
        infinite.
        """
        return self._push("push", gradients, loss, versions, lambda answers: str(answers[0].header["outcome"]))

    def pull(
        self, names: Sequence[str] | None = None, rows: Mapping[str, Sequence[int]] | None = None
    ) -> "Future[Tensors]":
        """Fetch the parameters, or those of these ``names``. The future waits as the consistency model says.

        ``rows`` gives, by name, the rows of a tensor that are wanted, in that order: those alone travel. ValueError for
        names and rows that there are not.
        """
        if isinstance(names, str) or not isinstance(names, Iterable | None):
            raise TypeError(f"pull takes a list of names, such as ['w'], or None for all of them; got {names!r}.")
        if not isinstance(rows, Mapping | None):
            raise TypeError(f"pull takes rows as a mapping, such as {{'w': [0, 2]}}; got {rows!r}.")
        names = None if names is None else list(names)
        chosen = {name: [int(row) for row in some] for name, some in (rows or {}).items()}
        for name in (*(names or ()), *chosen):
            if name not in self._refs:
                raise ValueError(f"There is no tensor {name!r} on the servers; there are {', '.join(self._refs)}.")
        messages = []
        for server in self._servers:
            header: Header = {"kind": "pull", "worker": self.worker}
            if names is not None:
                header["names"] = [name for name in names if name in server.layout]
            if chosen:
                header["rows"] = {name: some for name, some in chosen.items() if name in server.layout}
                for name, some in header["rows"].items():
                    server.layout[name].rows(some)
            messages.append(Message(header))
        return self._call(messages, lambda answers: self._whole(answers, chosen))

    def push_pull(
        self, gradients: Mapping[str, Array], *, loss: float | None = None, versions: tuple[int, ...] | None = None
    ) -> "Future[Tensors]":
        """A push and the pull after it in one message each way: one round trip instead of two."""
        return self._push("push_pull", gradients, loss, versions, self._whole)

    def refs(self) -> dict[str, Ref]:
        """A reference to each tensor on the servers, by name."""
        return dict(self._refs)

    def report(self) -> dict[str, Any]:
        """What a run keeps of this client."""
        return {"bytes_sent": self.bytes_sent, "bytes_received": self.bytes_received, "trace": self.trace}

    def close(self) -> None:
        """Say goodbye and hang up."""
        if not self._closing.is_set():
            self._closing.set()
            with suppress(Exception):
                for farewell in [server.goodbye() for server in self._servers]:
                    farewell.result(1.0)
        self._hang_up()
        self._heart.join()

    def _meet(self, answers: list[Message]) -> None:
        indices = [answer.header["index"] for answer in answers]
        wanted = answers[0].header["servers"] if answers else self.config.servers
        if indices != list(range(wanted)):
            raise ValueError(
                f"Expected the addresses of all {wanted} servers of one run, in their order; "
                f"got servers {', '.join(map(str, indices)) or 'none'}."
            )
        for server, answer in zip(self._servers, answers, strict=True):
            layout = answer.header["layout"].items()
            server.layout = {name: Layout(tuple(shape), *rest) for name, (shape, *rest) in layout}
        layouts = [item for server in self._servers for item in server.layout.items()]
        self._refs = {name: Ref(name, part.shape, part.dtype, self) for name, part in layouts}
        self._dtypes = {name: np.dtype(ref.dtype) for name, ref in self._refs.items()}
        self._beat_s = min(answer.header["silence_s"] for answer in answers) / 4

    def _push(
        self,
        kind: str,
        gradients: Mapping[str, Array],
        loss: float | None,
        versions: tuple[int, ...] | None,
        finish: Callable[[list[Message]], Any],
    ) -> "Future[Any]":
        whole = self._check(gradients)
        if versions is not None and not (isinstance(versions, Sequence) and len(versions) == len(self._servers)):
            raise ValueError(
                f"versions holds one whole number for each of the {len(self._servers)} servers, as client.versions "
                f"does, or is None; got {versions!r}."
            )
        header = {"kind": kind, "worker": self.worker, "loss": None if loss is None else float(loss)}
        clocks = [server.clock for server in self._servers]
        messages = [
            Message({**header, "clock": clock, "version": version}, cut(whole, server.layout))
            for server, clock, version in zip(self._servers, clocks, versions or self.versions, strict=True)
        ]
        self.trace.step = self.clock
        for server, clock in zip(self._servers, clocks, strict=True):
            server.clock = clock + 1  # before the answer can come, which may move it further
        try:
            future = self._call(messages, finish)
            if self.config.overlap:
                future.attend()  # nobody will wait for it before the next gradient is there
            return future
        except BaseException:
            for server, clock in zip(self._servers, clocks, strict=True):
                server.clock = clock
            raise

    def _check(self, gradients: Mapping[str, Array]) -> Tensors:
        refs = self._refs
        if not isinstance(gradients, Mapping):
            raise TypeError(
                f"A push takes a mapping of names to gradients, here of {', '.join(refs)}; "
                f"got {reprlib.repr(gradients)}."
            )
        if gradients.keys() != refs.keys():
            raise ValueError(f"Expected gradients of {', '.join(refs)}; got {', '.join(gradients) or 'none'}.")
        whole = {name: native(gradients[name]) for name in refs}
        for name, ref in refs.items():
            g = whole[name]
            if g.shape != ref.shape or g.dtype != self._dtypes[name]:
                raise ValueError(
                    f"The gradient of {name!r} must be {ref.dtype} of shape {ref.shape}; got {g.dtype} of {g.shape}."
                )
        check_finite(whole, "The gradient of")
        return whole

    def _whole(self, answers: list[Message], rows: Mapping[str, Sequence[int]] | None = None) -> Tensors:
        tensors = join([answer.tensors for answer in answers], [server.layout for server in self._servers], rows)
        return {name: tensors[name] for name in self._refs if name in tensors}

    def _call(self, messages: list[Message], finish: Callable[[list[Message]], Any]) -> Driven[Any]:
        """One message to each server; the future of ``finish`` of all their answers."""
        frames = [server.encoder.encode(message) for server, message in zip(self._servers, messages, strict=True)]
        if len(frames) == 1:
            return self._servers[0].send(frames[0], messages[0], lambda answer: finish([answer]))
        each = zip(self._servers, frames, messages, strict=True)
        return Joined([server.send(some, message, _same) for server, some, message in each], finish)

    def _beat(self) -> None:
        while not self._closing.wait(self._beat_s):
            for server in self._servers:
                if not server.outstanding:
                    with suppress(Exception):
                        server.call(Message({"kind": "alive", "worker": self.worker}))

    def _hang_up(self) -> None:
        self._closing.set()
        for server in self._servers:
            server.channel.close()


class _Connection:
    """One server as the client sees it: the channel, both halves of the codec's link, and what the last answer said."""

    def __init__(
        self, connect: Callable[[], Channel], address: str, client: Client, index: int, pauses_s: Sequence[float]
    ) -> None:
        self.address, self.client = address, client
        self.channel = LastingChannel(connect, self._resume, pauses_s)
        rng = seeds.push(client.config.seed, client.worker, index)
        self.encoder, self.decoder = Encoder(client.config.push, rng, client.trace), Decoder(client.trace)
        self.layout: dict[str, Layout] = {}
        self.clock, self.version, self.done, self.outstanding = 0, 0, False, 0

    def call(self, message: Message) -> Driven[Message]:
        return self.send(self.encoder.encode(message), message, _same)

    def goodbye(self) -> Driven[Message]:
        """The last call; a server that is gone does not miss it."""
        bye = Message({"kind": "bye", "worker": self.client.worker})
        return self.send(self.encoder.encode(bye), bye, _same, last=True)

    def send(self, frames: Frames, message: Message, finish: Callable[[Message], T], last: bool = False) -> Driven[T]:
        """Send a message that has been encoded; the future of ``finish`` of the decoded answer."""
        began = time.monotonic()
        self.client.bytes_sent += sum(map(len, frames))
        self.outstanding += 1

        def arrived(answer: "Future[Frames]") -> T:
            self.outstanding -= 1
            try:
                decoded = self._decoded(answer.result(), message.kind, began)
            except BaseException:
                self.clock = min(self.clock, message.header.get("clock", self.clock))  # a push that was refused
                raise
            return finish(decoded)

        try:
            return self.channel.call(frames, arrived, last)
        except BaseException:
            self.outstanding -= 1
            raise

    def _resume(self, channel: Channel) -> None:
        """Say on a new connection that this worker is still here; what it pulls is remembered anew, on both sides."""
        again = Message({"kind": "hello", "worker": self.client.worker, "again": True})
        channel.call(self.encoder.encode(again)).result(self.client.config.timeout_s)
        self.decoder = Decoder(self.client.trace)

    def _decoded(self, frames: Frames, kind: str, began: float) -> Message:
        client, took = self.client, time.monotonic() - began
        client.bytes_received += sum(map(len, frames))
        packet, stamp = unpack(frames, client.config.pull, client.trace)
        busy, waited = (float(stamp.get(key, 0.0)) for key in ("busy", "waited"))
        if kind in ("push", "pull", "push_pull"):
            client.trace.add("transfer", began, max(0.0, took - busy - waited))
            client.trace.add("wait", began + took - waited, waited)
        answer = self.decoder.decode(packet)
        self.done = bool(stamp["done"])
        self.clock = max(self.clock, int(stamp["clock"]))
        if kind in ("pull", "push_pull"):
            self.version = int(answer.header["version"])
        return Message({**answer.header, **stamp}, answer.tensors)


def _same(answer: Message) -> Message:
    return answer
