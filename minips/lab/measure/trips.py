"""One message of float32 there and back, many ways. All of this runs in processes of its own.

A way is a pair of context managers. ``serve(…)`` opens the serving side and yields the address; ``trip(address, …)``
opens the calling side and yields a function that makes one round trip and returns what came back. Both take the keyword
``values``, how many; those that can either send back what they got or push and pull take ``applies``: the server
subtracts ``LR`` times what came from its parameters and answers with these.

`attend` and `travel` are the roles that open the two sides, in a process each.
"""

import asyncio
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

import numpy as np

from minips.engines.supervisor import ControlPipe
from minips.stage import Array
from minips.stages.optimizers import SGD
from minips.stages.transports import Tcp, Transport
from minips.stages.transports.network import loopback, netloc

LR = 2.0**-10
WAIT_S = 300.0
"""How long one trip may take: JSON takes its time."""

Trip = Callable[[], Any]
Way = Callable[..., AbstractContextManager[Any]]


def numbers(values: int) -> Array:
    """The gradients that every contender sends."""
    return np.random.default_rng(0).normal(size=values).astype(np.float32)


def answering(values: int, applies: bool) -> Callable[[Array], Array]:
    """The serving side's answer to a message."""
    params, state = {"w": np.zeros(values, np.float32)}, dict[str, Any]()

    def step(gradient: Array) -> Array:
        SGD(lr=LR).step(params, {"w": gradient}, state)
        return params["w"]

    return step if applies else lambda same: same


def attend(control: ControlPipe, *, serve: Way, parts: dict[str, Any]) -> None:
    """The serving side, until the supervisor says stop."""
    silence()
    with serve(**parts) as address:
        control.send("ready", address)
        control.wait()


def travel(control: ControlPipe, *, trip: Way, address: Any, applies: bool, parts: dict[str, Any]) -> None:
    """The calling side: one trip to see that the right answer comes, then one whenever the supervisor says so."""
    silence()
    x = numbers(parts["values"])
    with trip(address, **parts) as make:

        def timed() -> tuple[float, Any]:
            began = time.perf_counter()
            got = make()
            return time.perf_counter() - began, got

        first_s, got = timed()
        if not np.array_equal(got, -np.float32(LR) * x if applies else x):
            raise RuntimeError("the first answer is not the right one, so its time would mean nothing")
        control.send("ready", first_s)
        del got
        while control.wait("turn")[0] == "turn":
            control.send("took", timed()[0])


def silence() -> None:
    """Suppress what libraries write to the terminal's file descriptors; errors are raised all the same."""
    with open(os.devnull, "wb") as nowhere:
        for descriptor in (1, 2):
            os.dup2(nowhere.fileno(), descriptor)


@contextmanager
def echo_server(*, values: int) -> Iterator[int]:
    """A bare TCP socket that sends back what it got."""
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
    """The other end of `echo_server`."""
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
def frames_server(*, transport: Transport, values: int) -> Iterator[tuple[str, str]]:
    """A transport alone, which sends back the frames that it got."""
    token = secrets.token_hex(16)
    with transport.serve(lambda frames: frames, token=token) as endpoint:
        yield endpoint.address, token


@contextmanager
def frames(address: tuple[str, str], *, transport: Transport, values: int) -> Iterator[Trip]:
    """One frame there and back."""
    frame = numbers(values).data.cast("B")
    with transport.connect(*address) as channel:
        yield lambda: np.frombuffer(channel.call([frame]).result(WAIT_S)[0], np.float32)


@contextmanager
def json_server(*, values: int, applies: bool) -> Iterator[int]:
    """Aiohttp and JSON as a lecture does: a POST whose body is a list of floats, and so is the answer's."""
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
    """The other end of `json_server`, with one connection that stays open."""
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
