"""From an address to a client, or to answers about a run: its status and its config."""

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from minips.core.codec import Codec, encode_plainly, unpack
from minips.core.config import Config, check_seconds
from minips.core.message import Header, Message
from minips.drivers.client import Client
from minips.drivers.reconnecting import PAUSES_S
from minips.results.status import Status
from minips.results.trace import Trace
from minips.stage import build, names, nearest, stage_class
from minips.stages.serializers import Packet
from minips.stages.transports import Link, Transport
from minips.stages.transports.base import check_token
from minips.stages.transports.link import UNSHAPED

Ask = Callable[..., Header]
"""``ask(kind, **header)``: the header of the answer."""


def status(
    address: str, token: str, *, transport: Transport | None = None, timeout: float = 10.0, over_s: float = 0.0
) -> Status:
    """The status of the server at ``address``: the progress of its run, its workers, and who waits for whom.

    ``over_s``: ask again after so many seconds, and add pushes and bytes a second. ``transport`` is one that reaches
    the server; None: its address says which. ConnectionError, PermissionError and ValueError as `connect`.
    """
    check_token(token)
    check_seconds("timeout", timeout)
    if over_s:
        check_seconds("over_s", over_s)
    with asking(address, token, transport, timeout) as ask:
        first, began = Status.from_dict(ask("status")), time.monotonic()
        if not over_s:
            return first
        time.sleep(over_s)
        return Status.from_dict(ask("status")).since(first, time.monotonic() - began)


@contextmanager
def asking(
    address: str, token: str, transport: Transport | None, timeout: float, codec: Codec | None = None
) -> Iterator[Ask]:
    """One connection for questions that are no worker's, through a link where the server is behind one. ``codec`` is
    that of the servers, where it is known.
    """
    reached = transport or transport_of(address)
    with reached.connect(address, token, timeout) as channel:

        def ask(kind: str, **header: Any) -> Header:
            frames = encode_plainly(Message({"kind": kind, **header}), Codec())
            packet: Packet
            packet, _ = unpack(channel.call(frames).result(timeout), codec or Codec(), Trace())
            return packet.header

        try:
            ask("status")
        except ValueError as error:
            if UNSHAPED not in str(error):
                raise
        else:
            yield ask
            return
    with asking(address, token, Link().around(reached), timeout, codec) as ask:
        yield ask


def transport_of(address: str) -> Transport:
    """The transport with this address's scheme. ValueError where there is none."""
    scheme, separator, _ = address.partition("://")
    known = {getattr(stage_class("transport", name), "scheme", ""): name for name in names("transport")}
    if not separator or scheme not in known:
        raise ValueError(
            f"An address begins with a transport's name, as tcp://127.0.0.1:5000 does; got {address!r}. "
            f"{nearest(scheme, known)}"
        )
    transport: Transport = build("transport", known[scheme])
    return transport


def config_of(status: Header, transport: Transport) -> Config:
    """The config in a server's status, over this ``transport``. ValueError for a serializer that can run code."""
    config = Config.from_dict(status["config"]).with_({"transport": transport})
    if config.pull.serializer.trusted_only or config.push.serializer.trusted_only:
        raise ValueError(
            f"The server's config names a serializer that can run code: {config.pull.serializer!r}. Give the config "
            "here, with config=, to say that the server is trusted with that."
        )
    return config


def listed(address: Any) -> list[str]:
    """The addresses of one or more servers, as a list. TypeError for anything else."""
    try:
        addresses = [address] if isinstance(address, str) else [*address]
    except TypeError:
        addresses = [address]
    if not all(isinstance(text, str) for text in addresses):
        raise TypeError(
            "connect takes the server's address, server.address, or a list of all the servers' addresses; "
            f"got {address!r}."
        )
    return addresses


def connect(
    address: str | Sequence[str],
    config: Config | None = None,
    *,
    worker: int | None = 0,
    token: str = "",
    timeout: float = 10.0,
    transport: Transport | None = None,
    trace: Trace | None = None,
    pauses_s: Sequence[float] = PAUSES_S,
    check: Callable[[Header], object] | None = None,
    rows: float | Callable[[int, Config], float] = 0,
) -> Client:
    """A client of the server at ``address``, or of several servers at their addresses. Use with ``with``.

    ``config`` is that of the servers; None: they send it, and ``transport`` is one that reaches them (None: the address
    says which). ``worker`` is this worker's number; None: the first free one. No other client can be a worker that is
    connected and not silent.

    ``connect`` calls ``check`` with the first server's status before this worker takes a number; an error of ``check``
    prevents that. The client connects again when its connection breaks, after each of ``pauses_s`` seconds; a push
    counts once, whether its acknowledgement was lost or not. An aggregator that weighs needs the ``rows`` of this
    worker's shard, or a function of its number and the config that tells them.

    ConnectionError where no server answers, PermissionError for a wrong token, ValueError where the addresses are not
    those of all the servers of one run or another client is this worker; ValueError or TypeError for what is no
    address, token, worker or time.
    """
    check_token(token)
    check_seconds("timeout", timeout)
    if not isinstance(config, Config | None):
        raise TypeError(f"connect takes the Config that the server has; got {config!r}.")
    if not isinstance(worker, int | np.integer | None):
        raise TypeError(f"worker is a worker's number, from 0 on; got {worker!r}. None stands for the first free one.")
    addresses, identity = listed(address), secrets.token_hex(16)
    with ExitStack() as stack:
        if addresses and (config is None or worker is None or check):
            reached = config.shaped_transport() if config else transport or transport_of(addresses[0])
            ask = stack.enter_context(asking(addresses[0], token, reached, timeout, config.pull if config else None))
            header = ask("status", config=True)
            config = config or config_of(header, reached)
            if check:
                check(header)
            if worker is None:
                worker = ask("hello", worker=-1, client=identity)["worker"]
        config, worker = config or Config(), int(worker or 0)
        told = rows if not callable(rows) else rows(worker, config) if config.aggregator.weighs else 0
        return Client(addresses, config, worker, token, timeout, trace, pauses_s, identity, told)
