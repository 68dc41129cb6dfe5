"""The contract of a transport: it carries frames whole and in order, explains its errors, and leaves nothing behind.

Each check is a function of a transport. Its docstring states the requirement, and an error's text begins with it.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from minips.stage import Frames
from minips.stages.transports import Channel, Connection, Endpoint, Handler, Service, Transport
from minips.testing.base import WAIT_S, doing, refusing, require
from minips.testing.stages import check_stage
from minips.training.progress import Wait, showing

TOKEN = "a token for the checks"
GRACE_S = 5.0
"""The time, in seconds, within which threads and descriptors must be gone."""


@showing(None, first=Wait("checking a transport"))
def check_transport(transport: Transport, cycles: int = 50) -> None:
    """Check a transport against its contract. To detect leaks, open and close ``cycles`` connections."""
    check_stage(transport)
    for check in CHECKS:
        run(check, transport)
    with doing(f"{transport!r}: {cycles} connections, opened and closed"):
        leaves_nothing_behind(transport, cycles)


def run(check: Callable[[Transport], None], transport: Transport) -> None:
    """Run one of the `CHECKS`. Its AssertionError starts with the check's docstring."""
    title = (check.__doc__ or check.__name__).strip().rstrip(".")
    with doing(f"{transport!r}: {title}"):
        check(transport)


@contextmanager
def talking(
    transport: Transport, handler: Handler | Service = lambda frames: frames
) -> Iterator[tuple[Endpoint, Channel]]:
    """Yield an endpoint with a handler, by default an echo, and a channel to it."""
    with transport.serve(handler, token=TOKEN) as endpoint, _connect(transport, endpoint) as channel:
        yield endpoint, channel


class _Gate:
    """Echoes calls, but delays calls that begin with the frame ``wait`` until it is ``opened``."""

    def __init__(self) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()
        self.seen: list[Frames] = []

    def __call__(self, frames: Frames) -> Frames:
        if bytes(frames[0]) == b"wait":
            self.reached.set()
            self.opened.wait(WAIT_S)
            self.seen.append(frames)
        return frames


@contextmanager
def _gated(transport: Transport) -> Iterator[tuple[Endpoint, Channel, _Gate]]:
    gate = _Gate()
    with talking(transport, gate) as (endpoint, channel):
        try:
            yield endpoint, channel, gate
        finally:
            gate.opened.set()


class Watched(Service):
    """Echoes calls, and records the connection of each call and the connections that have closed."""

    def __init__(self) -> None:
        super().__init__(partial(_WatchedConnection, self))
        self.asked: list[Connection] = []
        self.gone: list[Connection] = []
        self.left = threading.Event()


class _WatchedConnection(Connection):
    def __init__(self, service: Watched) -> None:
        self._service = service

    def answer(self, frames: Frames) -> Frames:
        self._service.asked.append(self)
        return frames

    def closed(self) -> None:
        self._service.gone.append(self)
        self._service.left.set()


def _connect(transport: Transport, endpoint: Endpoint, token: str = TOKEN) -> Channel:
    return transport.connect(endpoint.address, token, WAIT_S)


def _result(future: "Future[Frames]") -> Frames:
    """Return the answer to a call, or raise its error; a callback reports it. AssertionError if it does not arrive."""
    future_done = threading.Event()
    future.add_done_callback(lambda _: future_done.set())
    require(future_done.wait(WAIT_S), f"A call was not answered within {WAIT_S:g} seconds.")
    return future.result(0)


def _ask(channel: Channel, frames: Frames) -> Frames:
    """Make a call and wait, as a worker does."""
    future = channel.call(frames)
    try:
        return future.result(WAIT_S)
    except TimeoutError:
        require(future.done(), f"A call was not answered within {WAIT_S:g} seconds.")
        raise  # raised by the handler


def _require_echo(channel: Channel, otherwise: str) -> None:
    require(bytes(_ask(channel, [b"a"])[0]) == b"a", otherwise)


def _wait(event: threading.Event, what: str) -> None:
    require(event.wait(WAIT_S), f"{what} within {WAIT_S:g} seconds.")


def messages() -> Iterator[tuple[str, Frames]]:
    """Yield named messages: none, empty, small, large and many frames, in every kind of buffer."""
    rng = np.random.default_rng(8)
    yield "no frames", []
    yield "an empty frame", [b""]
    yield "empty frames among others", [b"", b"a", b"", b"", b"bc", b""]
    yield "frames of one byte", [b"a", b"b", b"c"]
    yield "frames around powers of two", [rng.bytes(2**i + j) for i in range(1, 17) for j in (-1, 0, 1)]
    yield "256 frames", [bytes([i]) * i for i in range(256)]
    yield "1500 frames", [rng.bytes(i % 7) for i in range(1500)]
    yield "1500 empty frames", [b""] * 1500
    kinds: Frames = [b"bytes", bytearray(b"bytearray"), memoryview(b"memoryview"), np.arange(9, dtype=np.uint8).data]
    yield "every kind of buffer", kinds
    yield "large frames between small ones", [b"head", rng.bytes(2**20), b"", rng.bytes(2**23), b"tail"]
    yield "a frame of 64 MB", [rng.bytes(1000) * 64_000]


def frames_come_back(transport: Transport) -> None:
    """Frames come back in order, with their lengths."""
    with talking(transport) as (_, channel):
        for name, frames in messages():
            got = _ask(channel, frames)
            sent, came = (f"{len(some)} frames of {_few(map(len, some))} bytes" for some in (frames, got))
            require([*map(len, got)] == [*map(len, frames)], f"{name}: Sent {sent}, got {came}.")
            require([*map(bytes, got)] == [*map(bytes, frames)], f"{name}: the lengths are right, the bytes are not.")


def frames_are_writable(transport: Transport) -> None:
    """Received frames are writable, so that arrays can use their memory."""

    def stamp(frames: Frames) -> Frames:
        memoryview(frames[0])[0] = 7
        return frames

    with talking(transport, stamp) as (_, channel):
        (frame,) = _ask(channel, [b"abc"])
        require(not memoryview(frame).readonly, "The answer's frame is read-only.")
        require(bytes(frame) == b"\x07bc", f"The handler wrote into its frame, and {bytes(frame)!r} came back.")


def frames_sent_stay_as_they_were(transport: Transport) -> None:
    """The caller's own buffer is not changed, whatever the handler does with the received frames."""

    def wipe(frames: Frames) -> Frames:
        memoryview(frames[0])[:] = bytes(len(frames[0]))
        return []

    with talking(transport, wipe) as (_, channel):
        mine = bytearray(b"mine")
        _ask(channel, [mine])
        require(mine == b"mine", f"It became {bytes(mine)!r}.")


def many_calls_are_outstanding(transport: Transport) -> None:
    """64 calls may be outstanding, and are handled and answered in order."""
    done: list[int] = []
    with _gated(transport) as (_, channel, gate):
        futures = _at_once(gate, lambda: [channel.call([b"wait", str(i).encode()]) for i in range(64)])
        for i, future in enumerate(futures):
            future.add_done_callback(partial(lambda i, _: done.append(i), i))
        require(not done, "An answer came before the handler gave one.")
        gate.opened.set()
        answers = [_number(_result(future)) for future in futures]
    seen = [_number(frames) for frames in gate.seen]
    require(answers == [*range(64)], f"The calls 0 to 63 were answered with {answers}.")
    require(seen == [*range(64)], f"The handler saw them as {seen}.")
    require(done == [*range(64)], f"The answers came as {done}.")


def _at_once(gate: _Gate, calls: Callable[[], list[Future[Frames]]]) -> list[Future[Frames]]:
    """Make some calls and return their futures. AssertionError if making a call waits for its answer."""
    with ThreadPoolExecutor(1) as thread:
        made = thread.submit(calls)
        try:
            return made.result(WAIT_S)
        except TimeoutError:
            raise AssertionError("call() waits for the answer; it must return a future immediately.") from None
        finally:
            if not made.done():
                gate.opened.set()


def _number(frames: Frames) -> int:
    return int(bytes(frames[1]))


def large_calls_are_outstanding(transport: Transport) -> None:
    """16 calls of 1 MB each way may be outstanding: answers are read while calls are being sent."""
    with talking(transport) as (_, channel):
        futures = [channel.call([bytes([i]) * 2**20]) for i in range(16)]
        for i, future in enumerate(futures):
            (frame,) = _result(future)
            require(bytes(frame) == bytes([i]) * 2**20, f"Call {i} got another one's answer.")


def threads_share_a_channel(transport: Transport) -> None:
    """Eight threads call over one channel, and each gets its own answers."""

    def caller(mine: int) -> None:
        for i in range(20):
            sent: Frames = [f"{mine}-{i}".encode(), bytes(mine * 1000)]
            require([*map(bytes, _ask(channel, sent))] == sent, f"Thread {mine} got a wrong answer to its call {i}.")

    with talking(transport) as (_, channel), ThreadPoolExecutor(8) as threads:
        list(threads.map(caller, range(8)))


def connections_do_not_wait_for_each_other(transport: Transport) -> None:
    """A handler that blocks one connection does not delay the others."""
    with _gated(transport) as (endpoint, channel, gate), _connect(transport, endpoint) as other:
        blocked = channel.call([b"wait"])
        _wait(gate.reached, "The handler was not called")
        for _ in range(3):
            _require_echo(other, "The other connection got a wrong answer.")
        require(not blocked.done(), "The blocked call was answered while its handler was blocked.")
        gate.opened.set()
        require(bytes(_result(blocked)[0]) == b"wait", "The blocked call got a wrong answer.")


def errors_reach_the_caller(transport: Transport) -> None:
    """An error of the handler reaches the caller's future, with its type and text, and the connection still works."""

    class OddError(Exception):
        pass

    sentence = "The gradient ∇w has 3 values, expected 4."
    raised = [ValueError, TypeError, RuntimeError, PermissionError, TimeoutError, OddError]

    def handler(frames: Frames) -> Frames:
        if len(frames) == 1:
            raise raised[int(bytes(frames[0]))](sentence)
        return frames

    with talking(transport, handler) as (_, channel):
        for i, kind in enumerate(raised):
            expected, mentions = (kind, sentence) if kind is not OddError else (RuntimeError, f"OddError: {sentence}")
            with refusing(f"The handler raised {kind.__name__}", expected, mentions):
                _ask(channel, [str(i).encode()])
            require(len(_ask(channel, [b"go", b"on"])) == 2, f"After the {kind.__name__} the next call went wrong.")


def too_many_frames_are_refused(transport: Transport) -> None:
    """A call of more than 65,536 frames raises ValueError, and the connection still works."""
    with talking(transport) as (_, channel):
        with refusing("A call of 65,537 frames", ValueError):
            _ask(channel, [b""] * 65_537)
        _require_echo(channel, "The call after it got a wrong answer.")


class _Recorder:
    """A caller that records its answers and errors."""

    def __init__(self) -> None:
        self.words: list[Frames | Exception] = []
        self.told = threading.Event()

    def arrived(self, frames: Frames) -> None:
        self.words.append(frames)
        self.told.set()

    def failed(self, error: Exception) -> None:
        self.words.append(error)
        self.told.set()


def callers_are_told_once(transport: Transport) -> None:
    """A caller that asks is told of its answer, or of the handler's error, once."""

    def handler(frames: Frames) -> Frames:
        if bytes(frames[0]) == b"no":
            raise KeyError("no")
        return frames

    with talking(transport, handler) as (_, channel):
        callers = {word: _Recorder() for word in (b"yes", b"no")}
        for word, caller in callers.items():
            channel.ask([word], caller)
            channel.attend()
            _wait(caller.told, f"The caller that asked {word!r} was not told")
        counts = [len(caller.words) for caller in callers.values()]
        require(counts == [1, 1], f"The two callers were told {counts} times.")
        (answer,), (error,) = (caller.words for caller in callers.values())
        right = isinstance(answer, list) and [*map(bytes, answer)] == [b"yes"]
        require(right, f"The caller that asked b'yes' was told {answer!r}.")
        require(isinstance(error, KeyError), f"The caller whose handler raised KeyError was told {error!r}.")


def cancelled_calls_do_no_harm(transport: Transport) -> None:
    """A caller that cancels its future does not disturb the calls after it."""
    with _gated(transport) as (_, channel, gate):
        futures = [channel.call([b"wait", str(i).encode()]) for i in range(4)]
        futures[1].cancel()
        gate.opened.set()
        for i in (0, 2, 3):
            require(_number(_result(futures[i])) == i, f"Call {i} got another one's answer.")
        _require_echo(channel, "A call after the cancelled one went wrong.")


def a_closed_endpoint_fails_its_callers(transport: Transport) -> None:
    """Once the endpoint has closed, pending and later calls fail with ConnectionError."""
    with _gated(transport) as (endpoint, channel, gate):
        pending = [channel.call([b"wait"]) for _ in range(3)]
        _wait(gate.reached, "The handler was not called")
        closing = threading.Thread(target=endpoint.close)
        closing.start()
        try:
            _require_broken(channel, pending)
        finally:
            gate.opened.set()
            closing.join(WAIT_S)
        require(not closing.is_alive(), f"close() did not return within {WAIT_S:g} seconds.")


def a_closed_channel_fails_its_calls(transport: Transport) -> None:
    """Once the channel has closed, its pending and later calls fail with ConnectionError, and others still work."""
    with _gated(transport) as (endpoint, channel, gate):
        pending = channel.call([b"wait"])
        _wait(gate.reached, "The handler was not called")
        channel.close()
        _require_broken(channel, [pending])
        gate.opened.set()
        with _connect(transport, endpoint) as other:
            _require_echo(other, "A new connection got a wrong answer.")


def _require_broken(channel: Channel, pending: "list[Future[Frames]]") -> None:
    for future in pending:
        with refusing("A pending call", ConnectionError):
            _result(future)
    with refusing("A later call", ConnectionError):
        _ask(channel, [b"later"])


def closed_is_called_once(transport: Transport) -> None:
    """Each connection has its own object, whose closed() is called once, when the peer has gone."""
    service = Watched()
    with transport.serve(service, token=TOKEN) as endpoint, _connect(transport, endpoint) as other:
        with _connect(transport, endpoint) as channel:
            _ask(channel, [b"a"])
            _ask(other, [b"b"])
            _ask(channel, [b"c"])
            require(not service.gone, "It was called while the channel was open.")
            channel.close()
            _wait(service.left, "It was not called")
        first, second, third = service.asked
        require(first is third and first is not second, "The calls did not come to their connections' objects.")
        require(service.gone == [first], f"It was called {len(service.gone)} times, or for another connection.")


def closing_twice_is_safe(transport: Transport) -> None:
    """Both sides can be closed twice, in either order."""
    for order in (1, -1):
        with talking(transport) as sides:
            _ask(sides[1], [b"a"])
            for side in sides[::order]:
                side.close()
                side.close()


def a_wrong_token_is_refused(transport: Transport) -> None:
    """A wrong token raises PermissionError and does not reach the handler, and the right one still works."""
    service = Watched()
    with transport.serve(service, token=TOKEN) as endpoint:
        for wrong in ("", "another", TOKEN + "x"):
            words = f"The token {wrong!r}"
            with refusing(words, PermissionError, "token"), _connect(transport, endpoint, wrong) as channel:
                _ask(channel, [b"let me in"])
        require(not service.asked and not service.gone, "The refused peers reached the handler.")
        with _connect(transport, endpoint) as channel:
            _require_echo(channel, "The right token got a wrong answer.")


def nobody_there_is_said(transport: Transport) -> None:
    """Connecting without a server raises ConnectionError, which names the address."""
    with transport.serve(lambda frames: frames, token=TOKEN) as endpoint:
        address = endpoint.address
    with refusing(f"connect({address!r}) after its endpoint has closed", ConnectionError, address):
        transport.connect(address, TOKEN, 2.0).close()


def an_address_in_use_is_said(transport: Transport) -> None:
    """An address in use raises OSError, which names it, and the address can be used again once it is free."""
    with talking(transport) as (endpoint, channel):
        with refusing(f"serve({endpoint.address!r}) a second time", OSError, endpoint.address):
            transport.serve(lambda frames: frames, endpoint.address, TOKEN).close()
        _require_echo(channel, "The first endpoint was disturbed by the second.")
    with transport.serve(lambda frames: frames, endpoint.address, TOKEN) as again:
        require(again.address == endpoint.address, f"Asked for {endpoint.address}, got {again.address}.")


def a_foreign_scheme_is_refused(transport: Transport) -> None:
    """An address of another transport raises ValueError, which names the expected scheme."""
    for address in ("nosuch://127.0.0.1:1", "127.0.0.1:1", ""):
        with refusing(f"connect({address!r})", ValueError, transport.scheme):
            transport.connect(address, TOKEN, 2.0).close()
    with refusing("serve('nosuch://127.0.0.1:1')", ValueError, transport.scheme):
        transport.serve(lambda frames: frames, "nosuch://127.0.0.1:1", TOKEN).close()


CHECKS: list[Callable[[Transport], None]] = []
CHECKS += [frames_come_back, frames_are_writable, frames_sent_stay_as_they_were, many_calls_are_outstanding]
CHECKS += [large_calls_are_outstanding, threads_share_a_channel, connections_do_not_wait_for_each_other]
CHECKS += [
    too_many_frames_are_refused,
    callers_are_told_once,
    errors_reach_the_caller,
    cancelled_calls_do_no_harm,
    a_closed_endpoint_fails_its_callers,
]
CHECKS += [a_closed_channel_fails_its_calls, closed_is_called_once, closing_twice_is_safe, a_wrong_token_is_refused]
CHECKS += [nobody_there_is_said, an_address_in_use_is_said, a_foreign_scheme_is_refused]


def leaves_nothing_behind(transport: Transport, cycles: int) -> None:
    """Closed connections and endpoints leave neither threads nor descriptors."""
    with transport.serve(lambda frames: frames, token=TOKEN) as endpoint:
        _once(transport, endpoint)  # afterwards, the resources that a library keeps open are open
    idle = _settled()
    with transport.serve(lambda frames: frames, token=TOKEN) as endpoint:
        _once(transport, endpoint)
        serving = _settled()
        for _ in range(cycles):
            _once(transport, endpoint)
        _require_gone(serving, f"after {cycles} connections, all closed, to an endpoint that is open")
    _require_gone(idle, "after the endpoint has closed")


def _once(transport: Transport, endpoint: Endpoint) -> None:
    with _connect(transport, endpoint) as channel:
        _require_echo(channel, "A connection got a wrong answer.")


Held = tuple[list[str], int]
"""The names of the threads, and the number of open descriptors."""


def _held() -> Held:
    descriptors = len(os.listdir("/dev/fd")) if Path("/dev/fd").exists() else 0
    return sorted(thread.name for thread in threading.enumerate()), descriptors


def _settled() -> Held:
    """Return the resources held, once they stay the same: a server takes a moment to notice that a peer has gone."""
    deadline, held, since = time.monotonic() + GRACE_S, _held(), time.monotonic()
    while time.monotonic() < deadline and time.monotonic() - since < 0.1:
        time.sleep(0.01)
        if _held() != held:
            held, since = _held(), time.monotonic()
    return held


def _require_gone(before: Held, when: str) -> None:
    deadline = time.monotonic() + GRACE_S
    while time.monotonic() < deadline and (len(_held()[0]) > len(before[0]) or _held()[1] > before[1]):
        time.sleep(0.01)
    threads, descriptors = _held()
    more = f"{len(before[0])} threads became {len(threads)}: {_few(threads)}"
    require(len(threads) <= len(before[0]), f"Threads are left {when}: {more}.")
    require(descriptors <= before[1], f"{descriptors - before[1]} descriptors are left {when}.")


def _few(values: Any) -> str:
    """Return the first eight values as text."""
    values = [*values]
    return f"[{', '.join(map(str, values[:8]))}{', …' if len(values) > 8 else ''}]"
