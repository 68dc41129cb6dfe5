"""Questions to a server, outside of a run: how it stands, and with which config."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from minips.core.codec import Codec, encode_plainly, unpack
from minips.core.config import Config, check_seconds
from minips.core.message import Header, Message
from minips.core.status import Status
from minips.stage import build, names, nearest, stage_class
from minips.stages.serializers import Packet
from minips.stages.transports import Link, Transport
from minips.stages.transports.auth import check_token
from minips.stages.transports.link import UNSHAPED
from minips.trace import Trace

Ask = Callable[..., Header]
"""``ask(kind, **header)``: the header of the answer."""


def status(
    address: str, token: str, *, transport: Transport | None = None, timeout: float = 10.0, over_s: float = 0.0
) -> Status:
    """The status of the server at ``address``: how far its run is, who is there, and who waits for whom.

    ``over_s``: look again after so many seconds, and say pushes and bytes a second. ``transport`` is one that reaches
    the server, None: its address says which. ConnectionError, PermissionError and ValueError as `connect`.
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
    """One connection for questions that are no worker's. A server may stand behind a link: then so does this side.
    ``codec`` is the servers', where it is known.
    """
    way = transport or transport_of(address)
    with way.connect(address, token, timeout) as channel:

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
    with asking(address, token, Link().around(way), timeout, codec) as ask:
        yield ask


def transport_of(address: str) -> Transport:
    """The transport whose addresses begin as this one does. ValueError where there is none."""
    scheme, separator, _ = address.partition("://")
    known = {getattr(stage_class("transport", name), "scheme", ""): name for name in names("transport")}
    if not separator or scheme not in known:
        raise ValueError(
            f"An address begins with a transport's name, as tcp://127.0.0.1:5000 does; got {address!r}. "
            f"{nearest(scheme, known)}"
        )
    transport: Transport = build("transport", known[scheme])
    return transport


def config_told(told: Header, transport: Transport) -> Config:
    """The config of a server's status, for a client that reaches it over ``transport``. ValueError where it names a
    serializer that can run code.
    """
    config = Config.from_dict(told["config"]).with_({"transport": transport})
    if config.pull.serializer.trusted_only or config.push.serializer.trusted_only:
        raise ValueError(
            f"The server's config names a serializer that can run code: {config.pull.serializer!r}. Give the config "
            "here, with config=, to say that the server is trusted with that."
        )
    return config


def listed(address: Any) -> list[str]:
    """The addresses of one or more servers. TypeError for what is none."""
    try:
        addresses = [address] if isinstance(address, str) else [*address]
    except TypeError:
        addresses = [address]
    if not all(isinstance(one, str) for one in addresses):
        raise TypeError(
            "connect takes the server's address, server.address, or a list of all the servers' addresses; "
            f"got {address!r}."
        )
    return addresses
