"""Connections to a server: as a worker's client, or only to ask for a run's status and config."""

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import Any

import numpy as np

from minips import files
from minips.core.codec import Codec, encode_plainly, unpack
from minips.core.config import Config, check_seconds
from minips.core.fields import ANSWERS, check_fields
from minips.core.limits import of_anything
from minips.core.membership import check_secret
from minips.core.message import Header, Message
from minips.drivers.checkpoint import WorkerFiles
from minips.drivers.client import Client
from minips.results.checkpoints import keeps_worker
from minips.results.status import Status
from minips.results.trace import Trace
from minips.stage import build, names, stage_class
from minips.stages.serializers import Packet
from minips.stages.transports import Link, Transport
from minips.stages.transports.base import check_token
from minips.stages.transports.link import UNSHAPED
from minips.words import check_type, suggestion

Ask = Callable[..., Header]
"""``ask(kind, **header)`` returns the header of the answer."""


def status(
    address: str, token: str, *, transport: Transport | None = None, timeout: float = 10.0, over_s: float = 0.0
) -> Status:
    """The status of the server at ``address``: the run's progress, the workers, and which worker waits for which.

    With ``over_s``, it asks again after this number of seconds, and adds pushes and bytes per second. ``transport`` is
    the server's; None: the address says which. ConnectionError, PermissionError and ValueError as for `connect`.
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
    """A connection for questions from outside the run, through a link if the server is behind one. ``codec`` is the
    servers' codec, if known.
    """
    check_type("status", transport, Transport | None, "a Transport")
    reached = transport or transport_of(address)
    limits = of_anything(reached)
    with reached.connect(address, token, timeout) as channel:

        def ask(kind: str, **header: Any) -> Header:
            frames = encode_plainly(Message({"kind": kind, **header}), Codec())
            packet: Packet
            packet, stamp, *_ = unpack(channel.call(frames).result(timeout), codec or Codec(), Trace(), limits=limits)
            check_fields(f"The answer to {kind}", {**packet.header, **stamp}, ANSWERS[kind], ANSWERS[kind], others=True)
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
    """The transport for this address's scheme. ValueError for an unknown scheme."""
    check_type("status", address, str, "a server's address")
    scheme, separator, _ = address.partition("://")
    known = {getattr(stage_class("transport", name), "scheme", ""): name for name in names("transport")}
    if not separator or scheme not in known:
        raise ValueError(
            f"An address begins with a transport's name, as tcp://127.0.0.1:5000 does; got {address!r}. "
            f"{suggestion(scheme, known)}"
        )
    transport: Transport = build("transport", known[scheme])
    return transport


def config_of(status: Header, transport: Transport) -> Config:
    """The config in a server's status, with this ``transport``. ValueError for a serializer that can run code."""
    config = Config.from_dict(status["config"]).with_({"transport": transport})
    if config.pull.serializer.trusted_only or config.push.serializer.trusted_only:
        raise ValueError(
            f"The server's config names a serializer that can run code: {config.pull.serializer!r}. Pass the "
            "config here, with config=, to say that you trust the server with that."
        )
    return config


def as_addresses(address: Any) -> list[str]:
    """The addresses of one or more servers, as a list. ValueError for a repeated one, TypeError for anything else."""
    try:
        addresses = [address] if isinstance(address, str) else [*address]
    except TypeError:
        addresses = [address]
    if not all(isinstance(text, str) for text in addresses):
        raise TypeError(
            "connect takes the server's address, server.address, or a list of all the servers' addresses; "
            f"got {address!r}."
        )
    if len({*addresses}) < len(addresses):
        raise ValueError(f"Expected the addresses of all servers, each once, in their order; got {addresses}.")
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
    pauses_s: Sequence[float] | None = None,
    check: Callable[[Header], object] | None = None,
    rows: float | Callable[[int, Config], float] = 0,
    session: str | os.PathLike[str] | None = None,
    secrets: Sequence[str] = (),
) -> Client:
    """A client of the server at ``address``, or of several servers at their addresses. Use it in a ``with`` statement.

    ``config`` is that of the servers; None: they send it, over ``transport`` (None: the address says which). ``worker``
    is this worker's number; None: the first free one. As long as a worker is connected and not silent, no other client
    can be that worker. ``session`` names a file, readable only by its owner, in which the client keeps its number and
    its secrets: a process restarted with that file is immediately the same worker. If pushes are lossy, or go to
    several servers, it keeps its last push beside that file, to continue with the same memories. ``secrets``, 32
    hexadecimal digits for each server, identify a new session; if there are none, the client draws them.

    ``connect`` calls ``check`` with the first server's status before this worker gets a number; an error from ``check``
    prevents that. If its connection breaks, the client tries to reconnect after each of the ``pauses_s`` seconds (None:
    for longer than a server keeps its rank). A push counts once, even if its acknowledgement was lost. An aggregator
    that weights pushes needs ``rows``: the number of this shard's rows, or a function of ``worker`` and the config.

    ConnectionError if no server answers. PermissionError for a wrong token. ValueError if the addresses are not those
    of all the servers of one run, or if another client is this worker. ValueError or TypeError for an invalid address,
    token, worker, time, session or secret.
    """
    check_token(token)
    check_seconds("timeout", timeout)
    if not isinstance(config, Config | None):
        raise TypeError(f"connect takes the Config that the server has; got {config!r}.")
    check_type("connect", trace, Trace | None, "a Trace")
    check_type("connect", check, Callable | None, "a function as its check")
    if not isinstance(worker, int | np.integer | None) or isinstance(worker, bool) or (worker or 0) < 0:
        raise TypeError(f"worker is a worker's number, from 0 on; got {worker!r}. None stands for the first free one.")
    addresses, kept = as_addresses(address), list[str]()
    if session is not None:
        worker, kept = _read_session(session, worker, len(addresses))
    secrets = kept or secrets or new_secrets(len(addresses))  # so a hello whose answer was lost can be repeated
    if len(secrets) != len(addresses):
        raise ValueError(f"secrets are one for each of {len(addresses)} servers; got {len(secrets)}.")
    for secret in secrets:
        check_secret(secret)
    with ExitStack() as stack:
        if addresses and (config is None or worker is None or check):
            reached = config.shaped_transport() if config else transport or transport_of(addresses[0])
            ask = stack.enter_context(asking(addresses[0], token, reached, timeout, config.pull if config else None))
            header = ask("status", config=True)
            config = config or config_of(header, reached)
            if check:
                check(header)
        if session is not None and not kept:
            _write_session(session, None, secrets)
        if addresses and worker is None:
            worker = ask("hello", worker=-1, secret=secrets[0])["worker"]
        config, worker = config or Config(), int(worker or 0)
        own_rows = rows if not callable(rows) else rows(worker, config) if config.aggregator.weighs else 0
        keeps = session is not None and keeps_worker(config)
        own = WorkerFiles(Path(session), kept[0]) if session is not None and keeps and kept else None
        again = own is not None and own.last is not None
        try:
            client = Client(addresses, config, worker, token, timeout, trace, pauses_s, secrets, own_rows, again)
        except BaseException:
            if own:
                own.close()
            raise
        client.files = own
        if session is not None:
            try:
                secrets = [server.secret for server in client.protocol.servers]
                _write_session(session, client.worker, secrets)
                if keeps:
                    client.files = own or WorkerFiles(Path(session), secrets[0])
                    client.files.take_over(client)
            except BaseException:
                client.close()
                raise
        return client


def new_secrets(servers: int) -> list[str]:
    """Secrets for a new session with so many servers."""
    return [token_hex(16) for _ in range(servers)]


def _write_session(file: str | os.PathLike[str], worker: int | None, secrets: Sequence[str]) -> None:
    """Write a session's file. The worker is None before the first hello, whose answer may be lost."""
    files.write(file, json.dumps({"worker": worker, "secrets": [*secrets]}), 0o600)


def _read_session(file: str | os.PathLike[str], worker: int | None, servers: int) -> tuple[int | None, list[str]]:
    """The number and the secrets in a session's file. Before the first hello, the number is ``worker``; without a file,
    the list is empty.
    """
    if not isinstance(file, str | os.PathLike):
        raise TypeError(f"session names the file in which a client keeps its secrets; got {file!r}.")
    files.check(file)
    path = Path(file)
    if not path.is_file():
        return worker, []
    if os.name == "posix" and path.stat().st_mode & 0o077:
        raise ValueError(f"The session file {path} can be read by others than its owner. Use: chmod 600 {path}")
    with suppress(ValueError, KeyError, TypeError):
        kept = json.loads(path.read_text())
        number = worker if kept["worker"] is None else kept["worker"]
        is_worker = kept["worker"] is None or (type(number) is int and worker in (None, number))
        if is_worker and len(kept["secrets"]) == servers:
            return number, list(kept["secrets"])
    who = "a worker" if worker is None else f"worker {worker}"
    raise ValueError(f"{path} is not a session file of {who} and {servers} servers. Name another, or delete it.")
