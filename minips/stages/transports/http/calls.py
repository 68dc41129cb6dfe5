"""HTTP/1.1: each call is a POST whose body is the message, over connections that a pool keeps open.

The library (aiohttp) does HTTP on both sides, in an event loop on each, and manages the pool: it limits and reuses
connections, and drops those that have been idle too long. HTTP does not identify a caller. So a client first requests
(GET) a session, and that response ends only with the session. Each side sees immediately when the other closes or dies,
and a newline every few seconds shows that the line is alive. A session's calls are numbered, since they overtake each
other on several connections.

    GET  /    →  200, Minips-Session: its name, then a newline every few seconds
    POST /    Minips-Session, Minips-Call: 0, 1, 2 …; a body (see `framing`)  →  200 and a body
              403 unknown session   410 ended session   411 413 length missing, or too long   400 malformed
              429 too many calls wait

A session may have 16 MB of calls outstanding in addition to the one being answered; further bodies are read later.

A call whose connection could not be established never reached the server, and is retried with growing delays; any other
call is not, as the server may have handled it. Bodies are written piece by piece and read into the arrays' final
memory: one copy, in addition to those made by the kernel and the event loop.
"""

import asyncio
import logging
import queue
import re
import secrets
import socket
import threading
import time
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from functools import cache
from itertools import count
from typing import Any, TypeVar

from minips.stages.transports.base import HANDSHAKE_S
from minips.stages.transports.calls import Body, RemoteCaller, RemoteServer
from minips.stages.transports.framing import LIMIT, TooLargeError, memory, size, too_large
from minips.stages.transports.inbox import InboxListener
from minips.stages.transports.patience import INCOMING, OUTSTANDING_BYTES, ConnectionMonitor, Limit

T = TypeVar("T")
_logger = logging.getLogger(__name__)
_logger.addHandler(logging.NullHandler())  # messages from unauthenticated peers are shown only on request
_SESSION, _CALL = "Minips-Session", "Minips-Call"
_AT_ONCE, _WAITING = 8, 64
"""The most calls of a client that may have their own connections, and of a session that may wait for memory."""
_AHEAD = 1024
"""The largest difference between a call's number and that of a call that is still outstanding."""
_ALIVE_S, _SILENCE_S, _IDLE_S = 5.0, 60.0, 60.0
_BACKOFF_S = (0.05, 0.2, 0.8)
_PIECE_BYTES = 2**18
_BUFFER_BYTES, _SERVER_BUFFER_BYTES = 2**20, 2**17
_END, _LENGTH = b"\r\n\r\n", re.compile(rb"(?i)\r\ncontent-length:[ \t]*(\d{1,19})[ \t]*\r\n")
"""The end of a request's head, and the line of the head that states the body's length."""
_TURN_S = 0.01
"""The seconds between two checks whether a body may be read."""


class _EventLoop(threading.Thread):
    """An event loop with its thread."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._loop = self._runner.get_loop()
        self.start()

    def begin(self, coroutine: Coroutine[Any, Any, T]) -> "Future[T]":
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def do(self, coroutine: Coroutine[Any, Any, T], timeout: float) -> T:
        future, left = self.begin(coroutine), Limit(timeout)
        while True:
            try:
                return future.result(left.tick)
            except TimeoutError:
                if future.done() or left.over():
                    raise

    def run(self) -> None:
        with self._runner:  # on exit, it cancels the remaining tasks
            self._loop.run_forever()

    def stop(self) -> None:
        if self.is_alive():
            with suppress(RuntimeError):  # the loop was closed in between
                self._loop.call_soon_threadsafe(self._loop.stop)
            self.join(HANDSHAKE_S)


async def _within(seconds: float, result: Awaitable[T]) -> T:
    """Wait for a result. TimeoutError if it does not arrive within a `Limit` of ``seconds``."""
    task, left = asyncio.ensure_future(result), Limit(seconds)
    try:
        while not (await asyncio.wait([task], timeout=left.tick))[0]:
            if left.over():
                raise TimeoutError
        return task.result()
    finally:
        task.cancel()


class HttpServer(RemoteServer):
    """The client's side: a session and the pool."""

    def __init__(self, url: str, pool: int, max_message_bytes: int) -> None:
        self.loop = _EventLoop(f"minips-http-{url}")
        self._url, self._pool, self._session, self._numbers = url, pool, "", count()
        self._max = max_message_bytes
        self._http: Any = None
        self._line: Any = None
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()

    def _socket(self, place: tuple[Any, ...]) -> socket.socket:
        sock = socket.socket(*place[:3])
        self._sockets.add(sock)
        return sock

    async def open(self, timeout: float) -> None:
        """Request a session and keep the line open."""
        import aiohttp

        at_once = self._pool or _AT_ONCE
        self._turn = asyncio.Semaphore(at_once)  # fair, whereas the connector's own queue lets a retry starve
        keeping: dict[str, Any] = {"keepalive_timeout": _IDLE_S} if self._pool else {"force_close": True}
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=at_once + 1, socket_factory=self._socket, **keeping),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=timeout),  # no limit on a handler's time
            read_bufsize=_BUFFER_BYTES,
        )
        self._line = await _within(timeout, self._http.get(self._url))
        self._session = self._line.headers.get(_SESSION, "")
        if self._line.status != 200 or not self._session:
            raise ConnectionError("it is not a minips server")
        self._watching = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        """Read the line until it ends, then end the session. Answers that are already on their way still arrive."""
        try:
            while await _within(_SILENCE_S, self._line.content.readany()):
                pass
            await asyncio.sleep(1.0)
        except Exception as error:
            error.__traceback__ = None  # aiohttp reraises the same error object, which would keep all frames
        await self._end()

    def begin(self, body: Body) -> Callable[[], memoryview]:
        return self.loop.begin(self._post(next(self._numbers), body)).result

    async def _post(self, number: int, body: Body) -> memoryview:
        import aiohttp

        headers = {_SESSION: self._session, _CALL: str(number), "Content-Length": str(size(body))}
        async with self._turn:
            for pause in (*_BACKOFF_S, None):
                try:
                    async with self._http.post(self._url, data=_cut(body), headers=headers) as response:
                        nbytes = response.content_length
                        if response.status == 413:
                            raise TooLargeError(f"A message of {size(body)} bytes is too large: {response.reason}.")
                        if response.status != 200 or nbytes is None:
                            raise ConnectionError(f"it answered {response.status} {response.reason}")
                        if nbytes > self._max:
                            raise too_large([nbytes], self._max)
                        return await _read(response.content, nbytes)
                except aiohttp.ClientConnectorError:
                    if pause is None or self._line.content.at_eof():
                        raise
                    await asyncio.sleep(pause)
        raise AssertionError

    async def _end(self) -> None:
        """Close the connections, and fail the calls that wait for them."""
        if self._line:
            self._line.close()
        await self._http.close()
        for sock in self._sockets:  # otherwise the event loop would first send the rest of a call
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def shutdown(self) -> None:
        if self._http and self.loop.is_alive():
            with suppress(RuntimeError, TimeoutError):
                self.loop.do(self._end(), HANDSHAKE_S)

    def close(self) -> None:
        self.shutdown()
        self.loop.stop()


class _HttpCaller(RemoteCaller):
    """The server's side of a session. Its calls arrive over several connections and overtake each other."""

    def __init__(self) -> None:
        super().__init__()
        self.name = secrets.token_hex(16)
        self.over: Future[None] = Future()
        self._early: dict[int, _Call] = {}
        self._next = self._open = self._held = self._ended = 0
        self._said = self.written = 0
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()

    def call(self, number: int, body: memoryview) -> "Future[Body]":
        """Accept a call; it is answered after all earlier calls. ValueError for a repeated or too large number."""
        if not self._next <= number < self._next + _AHEAD or number in self._early:
            raise ValueError(f"Call {number} came when {self._next} was expected.")
        future: Future[Body] = Future()
        future.set_running_or_notify_cancel()  # a broken connection must not cancel its turn
        self._early[number] = body, future
        while self._next in self._early:
            self._calls.put(self._early.pop(self._next))
            self._next += 1
        return future

    async def admit(self, number: int, nbytes: int) -> bool:
        """Wait for room for a call's body. Return False if too many calls wait, or the session has ended."""
        self._open += 1
        while number != self._ended and self._held + nbytes > OUTSTANDING_BYTES:
            if self._open > _WAITING or self.over.done():
                return False
            await asyncio.sleep(_TURN_S)
        self._held += nbytes
        return True

    def ended(self, nbytes: int) -> None:
        """Note that a call of ``nbytes`` bytes was answered."""
        self._open, self._held, self._ended = self._open - 1, self._held - nbytes, self._ended + 1

    def watch(self) -> None:
        """Do nothing, since the listener watches the peers in the thread that reads."""

    def serve(self) -> None:
        while call := self._calls.get():
            body, future = call
            try:
                answer = self.answer(body)
                self._said += size(answer)
                if self.over.done():
                    raise ConnectionError("The session has ended.")
                future.set_result(answer)
                while self._said - self.written > OUTSTANDING_BYTES and not self.over.done():
                    time.sleep(_TURN_S)
            except Exception as error:
                future.set_exception(error)
                raise
            del call, body, future, answer  # frees them before the next call arrives

    def shutdown(self) -> None:
        self._calls.put(None)
        with suppress(InvalidStateError):  # the session has already ended
            self.over.set_result(None)

    close = shutdown


_Call = tuple[memoryview, Future[Body]]
"""A call's body, and the future of its answer's body."""


class _PeerMonitor(ConnectionMonitor):
    """A connection on the server's side."""

    caller: _HttpCaller | None = None
    ours = False
    """True if a request has begun and the server must act next."""

    def __init__(self, sock: Any, stalled_s: float) -> None:
        super().__init__(sock, stalled_s)
        self._stranger = Limit(HANDSHAKE_S)
        self._head, self._left = bytearray(), 0

    def note(self, data: bytes) -> None:
        """Note received bytes: the heads of requests, and their bodies."""
        body = min(self._left, len(data))
        self._left -= body
        head, start = self._head, 0
        seen = max(len(head) - len(_END) + 1, 0)
        head += data[body:]
        while (end := head.find(_END, max(seen, start))) >= 0:
            length = _LENGTH.search(head, start, end + 2)
            self._left = int(length[1]) if length else 0
            start = end + len(_END)
            body = min(self._left, len(head) - start)
            self._left -= body
            start += body
        del head[:start]

    def check(self) -> None:
        """Raise ConnectionError for a peer that stalls, or that does not authenticate in time."""
        self.check_progress(bool(self._head or self._left) and not self.ours)
        if self.caller and not self.caller.over.done():
            self._stranger = Limit(HANDSHAKE_S)
            late = self.caller.overdue()
        else:
            late = not self.ours and self._stranger.over()
        if late:
            raise ConnectionError("a stranger made no call in time")


@cache
def _protocol() -> Any:
    """Return the class of a server's connection for aiohttp; it reports received bytes to its monitor."""
    from aiohttp import web

    class Protocol(web.RequestHandler):  # type: ignore[misc, unused-ignore]
        monitor: _PeerMonitor

        def data_received(self, data: bytes) -> None:
            self.monitor.note(data)
            super().data_received(data)

    return Protocol


class HttpListener(InboxListener[RemoteCaller]):
    """The server's side."""

    def __init__(self, sock: socket.socket, address: str, max_message_bytes: int, stalled_s: float) -> None:
        super().__init__(address)
        self._max, self._stalled_s = max_message_bytes, stalled_s
        self._callers: dict[str, _HttpCaller] = {}
        self._loop = _EventLoop(f"minips-http-{address}")
        self._sock, self._closing = sock, False
        sock.setblocking(False)
        self._taking = self._loop.begin(self._take())
        self._loop.begin(self._look())

    async def _take(self) -> None:
        """Accept connections. When asyncio's own server closes, it drops a new connection without closing it."""
        from aiohttp import web

        self._http: Any = web.Server(self._respond, handler_cancellation=True)
        loop = asyncio.get_running_loop()

        def protocol() -> Any:
            made = _protocol()(
                self._http,
                loop=loop,
                access_log=None,
                logger=_logger,
                lingering_time=1.0,
                keepalive_timeout=_IDLE_S + HANDSHAKE_S,  # longer than a client's; otherwise it could cut a call
                read_bufsize=_SERVER_BUFFER_BYTES,
            )
            made.monitor = _PeerMonitor(connection, self._stalled_s)
            return made

        while not self._closing:
            try:
                connection, _ = await loop.sock_accept(self._sock)
                await loop.connect_accepted_socket(protocol, connection)
            except OSError:
                await asyncio.sleep(0.05)  # perhaps out of descriptors

    async def _look(self) -> None:
        """Hang up on peers that stall, checking regularly."""
        while not self._closing:
            await asyncio.sleep(min(Limit(self._stalled_s).tick, Limit(HANDSHAKE_S).tick))
            for protocol in self._http.connections:
                try:
                    protocol.monitor.check()
                except ConnectionError:
                    if protocol.monitor.caller:
                        protocol.monitor.caller.shutdown()
                    if protocol.transport:
                        protocol.transport.abort()

    async def _respond(self, request: Any) -> Any:
        monitor = request.protocol.monitor
        monitor.ours = True
        try:
            return await (self._hold if request.method == "GET" else self._answer)(request, monitor)
        finally:
            monitor.ours = False

    async def _answer(self, request: Any, monitor: _PeerMonitor) -> Any:
        from aiohttp import web

        caller, length = self._callers.get(request.headers.get(_SESSION, "")), request.content_length
        if caller is None:
            return web.Response(status=403)
        if length is None or length > caller.limit:
            caller.shutdown()
            why = f"a message may have {caller.limit} bytes: {LIMIT}"
            return web.Response(status=411 if length is None else 413, reason=why)
        monitor.caller = caller
        try:
            number = int(request.headers.get(_CALL, ""))
            if not await caller.admit(number, length):
                caller.shutdown()
                return web.Response(status=429)
            while not INCOMING.reserve(length, self._max):
                await asyncio.sleep(_TURN_S)
            try:
                if request.headers.get("Expect", "").lower() == "100-continue":
                    await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                monitor.ours = False
                body = await _read(request.content, length)
            finally:
                INCOMING.release(length)
            monitor.ours = True
            coming = caller.call(number, body)
            del body
            answer = await asyncio.wrap_future(coming)
            del coming
            response = web.StreamResponse(headers={"Content-Length": str(size(answer))})
            with suppress(ConnectionError):  # the peer has gone
                await response.prepare(request)
                async for piece in _cut(answer):
                    await response.write(piece)
                await response.write_eof()
            caller.written += size(answer)
            caller.ended(length)
            return response
        except ValueError:
            caller.shutdown()
            return web.Response(status=400)
        except OSError:
            return web.Response(status=410)
        except asyncio.CancelledError:  # the connection broke: the session has lost a call or an answer
            caller.shutdown()
            raise

    async def _hold(self, request: Any, monitor: _PeerMonitor) -> Any:
        """Open a session and keep it for as long as its line is open."""
        from aiohttp import web

        monitor.caller = caller = _HttpCaller()
        self._callers[caller.name] = caller
        self.incoming.put(caller)
        over = asyncio.wrap_future(caller.over)
        response = web.StreamResponse(headers={_SESSION: caller.name})
        try:
            with suppress(ConnectionError):
                await response.prepare(request)
                while not over.done():
                    await response.write(b"\n")
                    await asyncio.wait([over], timeout=_ALIVE_S)
                await response.write_eof()
        finally:
            del self._callers[caller.name]
            caller.shutdown()
        return response

    def close(self) -> None:
        with suppress(TimeoutError):
            self._loop.do(self._stop(), HANDSHAKE_S)
        self._loop.stop()
        self._sock.close()

    async def _stop(self) -> None:
        self._closing = True
        with suppress(OSError):  # this connection wakes `_take`
            socket.create_connection(self._sock.getsockname()[:2], 0.2).close()
        await asyncio.wrap_future(self._taking)
        connections = [connection.transport for connection in self._http.connections]
        await self._http.shutdown(1.0)
        for connection in filter(None, connections):
            connection.abort()  # even if its peer does not read


async def _cut(body: Body) -> AsyncIterator[bytes | bytearray | memoryview]:
    """Yield pieces that are small enough for the kernel to accept, so that the event loop need not copy the rest."""
    small = b""
    for piece in body:
        if len(small) + len(piece) < _PIECE_BYTES:
            small += piece
            continue
        yield small
        small = b""
        for start in range(0, len(piece), _PIECE_BYTES):
            yield piece[start : start + _PIECE_BYTES]
    yield small


async def _read(stream: Any, nbytes: int) -> memoryview:
    """Read a body of ``nbytes`` bytes into its own memory."""
    body, end = memory(nbytes), 0
    while end < nbytes:
        chunk = await stream.readany()
        if not chunk:
            raise ConnectionError("the connection ended within a message")
        body[end : end + len(chunk)] = chunk
        end += len(chunk)
    return body
