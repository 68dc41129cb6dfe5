"""Round trips of a message over other systems, as contenders of `minips.lab.measure.pairs`: a bare socket, and JSON
over aiohttp.
"""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import numpy as np

from minips.lab.measure.pairs import WAIT_S, Trip, answering, numbers
from minips.stage import Array
from minips.stages.transports import Tcp
from minips.stages.transports.network import loopback, netloc


@contextmanager
def echo_server(*, values: int) -> Iterator[int]:
    """Serve a bare TCP socket that sends back the bytes that it receives; yield its port."""
    with Tcp().bind(None)[0] as listener:

        def serve() -> None:
            buffer = bytearray(4 * values)
            with suppress(OSError), listener.accept()[0] as sock, sock.makefile("rb") as stream:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                while stream.readinto(buffer) == len(buffer):
                    sock.sendall(buffer)

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]


@contextmanager
def echo(port: int, *, values: int) -> Iterator[Trip]:
    """Yield a function that makes one call to `echo_server`."""
    here = numbers(values)
    there = np.empty_like(here)
    back = there.data.cast("B")
    with socket.create_connection((loopback(), port), WAIT_S) as sock, sock.makefile("rb") as stream:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def make() -> Array:
            sock.sendall(here.data)
            if stream.readinto(back) < len(back):
                raise ConnectionError("The echo server hung up.")
            return there

        yield make


@contextmanager
def json_server(*, values: int, applies: bool) -> Iterator[int]:
    """Serve JSON over aiohttp as a lecture does: POST and answer contain a list of floats. Yield the port."""
    from aiohttp import web

    answer = answering(values, applies)

    async def handle(request: web.Request) -> web.Response:
        numbers = np.array(await request.json(), np.float32)
        return web.json_response(answer(numbers).tolist())

    async def begin() -> web.AppRunner:
        app = web.Application(client_max_size=2**40)
        app.router.add_post("/", handle)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, loopback(), 0).start()
        return runner

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    runner = asyncio.run_coroutine_threadsafe(begin(), loop).result(WAIT_S)
    yield runner.addresses[0][1]
    asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(WAIT_S)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(WAIT_S)


@contextmanager
def json(port: int, *, values: int, applies: bool) -> Iterator[Trip]:
    """Yield a function that makes one call to `json_server`; all its calls share one connection."""
    import aiohttp

    x = numbers(values)

    async def begin() -> aiohttp.ClientSession:
        return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=WAIT_S))

    async def ask() -> Array:
        async with session.post(f"http://{netloc(loopback(), port)}/", json=x.tolist()) as response:
            return np.array(await response.json(), np.float32)

    with asyncio.Runner() as runner:
        session = runner.run(begin())
        yield lambda: runner.run(ask())
        runner.run(session.close())
