"""Wrong transports, each `InProc` with one piece changed, and the words with which `ps.testing.check` refuses it."""

import queue
import threading
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import pytest
from wrong import Wrong, refuse

import minips as ps
from minips.stages.transports.base import Connection, Service, service_of

pytestmark = pytest.mark.soak  # each of them goes through most of the checks
WRONG = Wrong()
refused = WRONG.refused


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    """What never comes is not waited for long."""
    monkeypatch.setattr("minips.testing.transports.WAIT_S", 1.5)
    monkeypatch.setattr("minips.testing.transports.GRACE_S", 0.5)


@dataclass(frozen=True)
class Around(ps.InProc):
    """InProc with another channel: ``call`` is the transport's. A right one."""

    name = "around"

    def connect(self, address, token="", timeout=10.0):
        return _Channel(super().connect(address, token, timeout), self)

    def call(self, channel, frames):
        return channel.call(frames)


class _Channel:
    def __init__(self, channel, transport):
        self.inner, self.transport = channel, transport
        self.lock, self.calls = threading.Lock(), []
        self.close, self.read, self.attend = channel.close, channel.read, channel.attend

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def call(self, frames):
        return self.transport.call(self.inner, frames)

    def ask(self, frames, caller):
        self.transport.ask(self, frames, caller)


def _asked(self, channel, frames, caller):
    channel.inner.ask(frames, caller)


Around.ask = _asked


def mapped(future, change):
    """A future of what ``change`` makes of another one's frames."""
    changed = Future()

    def told(done):
        if done.cancelled():
            changed.cancel()
        elif error := done.exception():
            changed.set_exception(error)
        else:
            changed.set_result(change(done.result()))

    future.add_done_callback(told)
    return changed


@refused("Frames come back in order.*: empty frames among others: Sent|Frames come back")
class ReversesFrames(Around):
    def call(self, channel, frames):
        return channel.call(frames[::-1])


@refused("Frames come back in order.*Sent .* got")
class JoinsFrames(Around):
    def call(self, channel, frames):
        return channel.call([b"".join(map(bytes, frames))])


@refused("Frames come back in order.*an empty frame.*Sent .* got")
class DropsEmptyFrames(Around):
    def call(self, channel, frames):
        return channel.call([frame for frame in frames if len(frame)])


@refused("Frames come back in order.*every kind of buffer.*|the lengths are right, the bytes are not")
class SendsZeros(Around):
    def call(self, channel, frames):
        return channel.call([bytes(len(frame)) if len(frame) > 2**22 else frame for frame in frames])


@refused("Received frames are writable.*read-only")
class GivesBytes(Around):
    def call(self, channel, frames):
        return mapped(channel.call(frames), lambda came: [*map(bytes, came)])


@refused("every kind of buffer: the lengths are right, the bytes are not")
class WipesTheSentFrames(Around):
    def call(self, channel, frames):
        future = channel.call(frames)
        for frame in frames:
            if not memoryview(frame).readonly:
                memoryview(frame)[:] = bytes(len(frame))
        return future


@refused(r"64 calls may be outstanding.*call\(\) waits for the answer")
class WaitsInCall(Around):
    def call(self, channel, frames):
        future = channel.call(frames)
        with suppress(Exception):
            future.result(5)
        return future


@refused("The calls 0 to 63 were answered with|The answers came as|The handler saw them as")
class HandlesTheLastFirst(Around):
    """Each connection has threads that take the call that came last."""

    def serve(self, handler, address=None, token=""):
        return super().serve(_Shuffling(service_of(handler)), address, token)


class _Shuffling(Service):
    def __init__(self, service):
        super().__init__(partial(_Swapping, service.connection))


class _Swapping(Connection):
    """Answers with what the call before was answered with, from the second on."""

    def __init__(self, inner):
        self.inner, self.last = inner(), None
        self.closed = self.inner.closed

    def answer(self, frames):
        answer = self.inner.answer(frames)
        many = len(frames) == 2 and bytes(frames[0]) == b"wait"
        last, self.last = self.last, [bytearray(frame) for frame in answer]
        return last if many and last else answer


@refused("A handler that blocks one connection does not delay the others")
class OneAtATime(Around):
    """One lock for all connections."""

    def serve(self, handler, address=None, token=""):
        return super().serve(_Locked(service_of(handler)), address, token)


class _Locked(Service):
    def __init__(self, service):
        lock = threading.Lock()
        super().__init__(lambda: _Locking(service.connection(), lock))


class _Locking(Connection):
    def __init__(self, inner, lock):
        self.inner, self.lock = inner, lock
        self.closed = inner.closed

    def answer(self, frames):
        with self.lock:
            return self.inner.answer(frames)


@refused("The handler raised .*: expected ValueError, got RuntimeError|expected ValueError")
class LosesTheErrorsType(Around):
    def call(self, channel, frames):
        changed, future = Future(), channel.call(frames)

        def told(done):
            error = None if done.cancelled() else done.exception()
            if error and not isinstance(error, ConnectionError):
                changed.set_exception(RuntimeError(str(error)))
            elif error:
                changed.set_exception(error)
            else:
                changed.set_result(done.result())

        future.add_done_callback(told)
        return changed


@refused("The handler raised .*should mention|the .* has no text")
class LosesTheErrorsWords(Around):
    def call(self, channel, frames):
        changed, future = Future(), channel.call(frames)

        def told(done):
            error = None if done.cancelled() else done.exception()
            if error:
                changed.set_exception(type(error)("it failed"))
            else:
                changed.set_result(done.result())

        future.add_done_callback(told)
        return changed


@refused("A call of 65,537 frames: expected ValueError, and nothing was raised")
class TakesAnyNumber(Around):
    def call(self, channel, frames):
        if len(frames) > 65_536:
            return mapped(channel.call(frames[:1]), lambda came: came * len(frames))
        return channel.call(frames)


@refused("A caller that asks is told of its answer.*told .* times|was told")
class TellsTwice(Around):
    def ask(self, channel, frames, caller):
        class Twice:
            def arrived(self, came):
                caller.arrived(came)
                caller.arrived(came)

            failed = caller.failed

        channel.inner.ask(frames, Twice())


@refused("was not told within")
class NeverTells(Around):
    def ask(self, channel, frames, caller):
        channel.inner.call(frames)


@refused("pending and later calls fail with ConnectionError|A pending call|A later call")
class NeverFails(Around):
    """A call whose connection breaks gets an empty answer."""

    def call(self, channel, frames):
        changed = Future()
        try:
            future = channel.call(frames)
        except ConnectionError:
            changed.set_result([])
            return changed

        def told(done):
            error = None if done.cancelled() else done.exception()
            if error and not isinstance(error, ConnectionError):
                changed.set_exception(error)
            else:
                changed.set_result([] if error or done.cancelled() else done.result())

        future.add_done_callback(told)
        return changed


@refused("Each connection has its own object.*calls did not come to their connections' objects|It was called")
class OneObjectForAll(Around):
    def serve(self, handler, address=None, token=""):
        service = service_of(handler)
        one = queue.SimpleQueue()

        def connection():
            first = service.connection() if one.empty() else one.get()
            one.put(first)
            return first

        return super().serve(Service(connection), address, token)


@refused("whose closed\\(\\) is called once.*It was not called")
class NeverSaysClosed(Around):
    def serve(self, handler, address=None, token=""):
        service = service_of(handler)

        def connection():
            made = Connection()
            made.answer = service.connection().answer
            return made

        return super().serve(Service(connection), address, token)


@refused("A wrong token raises PermissionError.*expected PermissionError, and nothing was raised")
class TakesAnyToken(Around):
    tokens = {}

    def serve(self, handler, address=None, token=""):
        endpoint = super().serve(handler, address, token)
        self.tokens[endpoint.address] = token
        return endpoint

    def connect(self, address, token="", timeout=10.0):
        return super().connect(address, self.tokens.get(address, token), timeout)


@refused("Connecting without a server raises ConnectionError.*expected ConnectionError, got (LookupError|KeyError)")
class LooksItUp(Around):
    def connect(self, address, token="", timeout=10.0):
        try:
            return super().connect(address, token, timeout)
        except ConnectionError as error:
            raise KeyError(str(error)) from error


@refused("Connecting without a server raises ConnectionError.*should mention")
class SaysNoAddress(Around):
    def connect(self, address, token="", timeout=10.0):
        try:
            return super().connect(address, token, timeout)
        except ConnectionError:
            raise ConnectionError("nobody is there") from None


@refused("An address in use raises OSError.*expected OSError, and nothing was raised")
class TakesAnother(Around):
    def serve(self, handler, address=None, token=""):
        try:
            return super().serve(handler, address, token)
        except OSError:
            return super().serve(handler, None, token)


@refused("An address of another transport raises ValueError.*and nothing was raised|got ConnectionError")
class TakesAnyScheme(Around):
    def rest(self, address):
        return address.rpartition("://")[2]


@refused("Threads are left after")
class LeavesAThread(Around):
    threads = []

    def connect(self, address, token="", timeout=10.0):
        thread = threading.Timer(60, print)
        thread.daemon = True
        thread.start()
        self.threads.append(thread)
        return super().connect(address, token, timeout)


@pytest.fixture
def _no_thread_stays():
    yield
    for thread in LeavesAThread.threads:
        thread.cancel()
        thread.join()


@pytest.mark.parametrize(("cls", "said"), WRONG)
@pytest.mark.usefixtures("_no_thread_stays")
def test_a_wrong_transport_is_refused(registry, cls, said):
    refuse(cls, said)


def test_a_right_one_is_accepted(registry, monkeypatch):
    monkeypatch.undo()
    ps.testing.check_transport(ps.register(Around)(), cycles=3)
