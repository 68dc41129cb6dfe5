"""HTTP/1.1, for networks that let only web traffic pass. `calls` describes the messages."""

from dataclasses import dataclass

from minips.stage import option, register
from minips.stages.transports.calls import CallTransport, CallWire, RemoteCaller
from minips.stages.transports.endpoints import PatientTransport
from minips.stages.transports.network import netloc
from minips.stages.transports.wire import Listener, Wire
from minips.words import message_of


@register
@dataclass(frozen=True)
class Http(CallTransport, PatientTransport):
    """HTTP with a pool of connections, ``http://host:port``; with ``pool=0`` each call makes its own."""

    name = "http"
    scheme = "http"
    requires = ("aiohttp",)
    pool: int = option(8, "connections for calls; 0: a new one for each", minimum=0, maximum=64)
    max_message_bytes: int = option(2**31, "largest message accepted", minimum=2**10, unit="byte", operator=True)

    def listen(self, address: str | None) -> Listener[RemoteCaller]:
        from minips.stages.transports.http.calls import HttpListener  # imports asyncio

        return HttpListener(*self.bind(address), self.max_message_bytes, self.stalled_s)

    def dial(self, address: str, timeout: float) -> Wire:
        from minips.stages.transports.http.calls import HttpServer

        server = HttpServer(f"http://{netloc(*self.resolve(address, timeout))}/", self.pool, self.max_message_bytes)
        try:
            server.loop.do(server.open(timeout), timeout + 1)
        except Exception as error:
            server.close()
            raise ConnectionError(f"No server answers at {address}: {message_of(error)}.") from None
        return CallWire(server, address)
