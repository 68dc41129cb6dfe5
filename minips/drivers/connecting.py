"""From an address to a client."""

import secrets
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import numpy as np

from minips.core.config import Config, check_seconds
from minips.core.message import Header
from minips.drivers.asking import asking, config_told, listed, transport_of
from minips.drivers.client import Client
from minips.drivers.reconnecting import PAUSES_S
from minips.stages.transports import Transport
from minips.stages.transports.auth import check_token
from minips.trace import Trace


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
) -> Client:
    """A client of the server at ``address``, or of several servers at their addresses. Use with ``with``.

    ``config`` is that of the servers; None: they tell it, and ``transport`` is one that reaches them (None: the address
    says which). ``worker`` is this worker's number; None: the first one that nobody is. Another client cannot be a
    worker that is connected and heard.

    ``check`` is called with the first server's status before this worker takes a number, which an error prevents.
    A connection that breaks is made again, after each of ``pauses_s`` seconds; a push counts once, whether its
    acknowledgement was lost or not.

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
            way = config.shaped_transport() if config else transport or transport_of(addresses[0])
            ask = stack.enter_context(asking(addresses[0], token, way, timeout, config.pull if config else None))
            told = ask("status", config=True)
            config = config or config_told(told, way)
            if check:
                check(told)
            if worker is None:
                worker = ask("hello", worker=-1, client=identity)["worker"]
        return Client(addresses, config or Config(), int(worker or 0), token, timeout, trace, pauses_s, identity)
