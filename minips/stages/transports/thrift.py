"""Thrift: a service defined in an interface language, and a binary protocol for its calls.

The library (thriftpy2) reads the interface at run time and makes the classes that write and read its calls. Other
implementations compile such classes for twenty languages, which is the purpose of an interface language. The one method
of this interface accepts and returns bytes.

On the wire: the name of the call, a number, and the body (see `framing`) as a field of type binary, whose length is a
signed 32-bit number. thriftpy2 accepts and returns `bytes` and buffers them. A message is joined (a copy), copied into
the write buffer and out of it, into the read buffer and out of it, and once more into writable memory. Only one call at
a time is on the wire; see `blocking`. A peer that knows the token may stall in a message for as long as the system
keeps its connection.
"""

import io
import socket
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any

from minips.stage import register
from minips.stages.transports.blocking import BlockingTransport, Metered

INTERFACE = "service Minips { binary ask(1: binary body) }"


@cache
def _service() -> Any:
    from thriftpy2.parser.parser import parse_fp

    return parse_fp(io.StringIO(INTERFACE), "minips_thrift").Minips


def _protocol(sock: socket.socket) -> Any:
    from thriftpy2.protocol import TBinaryProtocol
    from thriftpy2.transport import TBufferedTransport, TSocket

    return TBinaryProtocol(TBufferedTransport(TSocket(sock=sock)), decode_response=False)


@register
@dataclass(frozen=True)
class Thrift(BlockingTransport):
    """Thrift's binary protocol over a connection for each channel: ``thrift://host:port``."""

    name = "thrift"
    scheme = "thrift"
    requires = ("thriftpy2",)

    def load(self) -> None:
        import thriftpy2.protocol
        import thriftpy2.transport  # noqa: F401

        _service()

    def client(self, sock: Metered) -> Callable[[bytes], bytes]:
        from thriftpy2.thrift import TClient

        ask: Callable[[bytes], bytes] = TClient(_service(), _protocol(sock)).ask
        return ask

    def read(self, sock: Metered, answer: Callable[[bytes], bytes]) -> None:
        from thriftpy2.thrift import TProcessor

        protocol, processor = _protocol(sock), TProcessor(_service(), SimpleNamespace(ask=answer))
        while True:
            processor.process(protocol, protocol)
