"""The exercises of "Move frames"."""

import math
import queue
import threading
import time
from typing import Any

import numpy as np

from minips.lab.course.exercises import Refused, asks, case, equals, is_own, keeps, raising, refuse_if
from minips.stage import Frames
from minips.stages.transports.endpoints import StreamTransport
from minips.testing import check_transport
from minips_course.move.queues import Message, MessageQueue

PATIENCE_S, WAIT_S = 10.0, 10.0
LATE_S = 0.3
"""The most seconds by which a receive may be late on purpose, because it looks for a message now and then."""
PATIENT, SHORTLY = 1000, 15
"""Waits of 2 ms, each of which is longer on a busy machine: for what must happen, and for what should not."""


@asks(
    "move.3",
    "What does send put into the queue: bytes, or a reference to the sender's list of buffers? And what does get "
    "return after a time-out?",
    "bytearray(frame) is a copy that may be written to. If get(timeout) returns None, no message came. The bytes of a "
    "message are those of all its frames.",
    "send puts the tag and a list of copies into the queue. receive passes the time-out to get, raises a TimeoutError "
    "if get returns None, then adds up the lengths of the frames, and raises a ValueError if that exceeds a limit "
    "other than None.",
    beside=True,
)
def queues(transport: Any, rng: np.random.Generator) -> str:
    """Write QueueWire: send frames as writable copies; receive gives up after its timeout, and refuses too much."""
    is_own(transport, StreamTransport, "Queues()")
    for nbytes in (1, *map(int, rng.integers(2, 5000, size=2)), 2**20):
        _travels_as_a_copy(transport, rng.bytes(nbytes))
        _is_a_copy_of_its_own(transport, rng, nbytes)
    for timeout in (None, 0.0, 0.003, float(rng.uniform(0.1, 0.9)), float(rng.uniform(3, 9)), 300.0):
        _waits_as_asked(transport, timeout)
    _gives_up(transport, float(rng.uniform(0.05, 0.2)))
    for sizes in ([], [0], [1], rng.integers(1, 900, size=1), rng.integers(1, 900, size=3), [0, 2**20, 7]):
        _refuses_too_much(transport, [rng.bytes(int(size)) for size in sizes])
    keeps(check_transport, transport, cycles=10)
    return "Frames travel as copies, receive gives up in time and refuses too much, and Queues passes minips' tests."


def _refuses_too_much(transport: Any, frames: Frames) -> None:
    """Refuse a wire unless receive returns what has at most ``limit`` bytes, and raises ValueError for more."""
    nbytes = sum(len(frame) for frame in frames)
    what = f"A message of {nbytes} bytes in {len(frames)} frames"
    for limit in (None, nbytes, nbytes + 1, nbytes - 1, nbytes // 2, 0):
        if limit is not None and limit < 0:
            continue
        inbox = MessageQueue()
        wire, peer = transport.end(inbox, MessageQueue()), transport.end(MessageQueue(), inbox)
        peer.send(2, frames)
        asked = f"{what}: receive(limit={limit})"
        try:
            tag, came = wire.receive(WAIT_S, limit)
        except ValueError as error:
            refuse_if(limit is None or nbytes <= limit, f"{asked} raised {error!r}.")
            continue
        except Exception as error:
            raise Refused(f"{asked} raised {error!r}.") from None
        refuse_if(limit is not None and nbytes > limit, f"{asked} returned it, expected a ValueError.")
        same = tag == 2 and [bytes(frame) for frame in came] == [bytes(frame) for frame in frames]
        refuse_if(not same, f"{asked} returned another message.")


def _travels_as_a_copy(transport: StreamTransport, content: bytes) -> None:
    kept: list[bytearray] = []

    def handler(frames: Frames) -> Frames:
        came = memoryview(frames[0])
        refuse_if(came.readonly, f"The handler cannot write into the frame of {len(content)} bytes that it got.")
        came[0] ^= 255
        kept.append(bytearray(content))
        return [kept[0]]

    mine = bytearray(content)
    with transport.serve(handler, token="check") as endpoint, transport.connect(endpoint.address, "check") as channel:
        try:
            (answer,) = channel.call([mine]).result(WAIT_S)
        except RuntimeError as error:
            raise Refused(str(error).removeprefix("Refused: ")) from None
        got = f"the frame of {len(content)} bytes that it got"
        refuse_if(mine != content, f"The handler wrote into {got}, and the sender's buffer changed.")
        refuse_if(bytes(answer) != content, f"The answer to a frame of {len(content)} bytes is not what was sent back.")
        back = memoryview(answer)
        refuse_if(back.readonly, f"The answer of {len(content)} bytes is read-only: nobody can write into it.")
        back[-1] ^= 255
        refuse_if(kept[0] != content, "The caller wrote into the answer that it got, and the server's buffer changed.")


def _is_a_copy_of_its_own(transport: StreamTransport, rng: np.random.Generator, nbytes: int) -> None:
    """Refuse a wire unless each frame that arrives is a writable copy of what it was when it was sent."""
    mine: Frames = [bytearray(rng.bytes(nbytes)), bytearray(rng.bytes(nbytes + 7)), rng.bytes(9), bytearray(b"")]
    mine.append(mine[0])
    before = [bytes(frame) for frame in mine]
    with (
        transport.listen(None) as listener,
        transport.dial(listener.address, WAIT_S) as wire,
        listener.accept() as peer,
    ):
        frames: Frames = [*mine]
        for tag in (3, 0):
            wire.send(tag, frames)
        frames.clear()
        for frame in mine:
            if isinstance(frame, bytearray):
                frame[:] = bytes(len(frame))  # the sender uses its buffers again
        for tag in (3, 0):
            came, got = peer.receive(WAIT_S)
            lengths = f"{len(before)} frames, the first of {nbytes} bytes"
            refuse_if(came != tag, f"a message with tag {tag} came with tag {came}.")
            same = [bytes(frame) for frame in got] == before
            refuse_if(not same, f"{lengths}: when the sender used its buffers again, what it had sent changed, too.")
            for number, frame in enumerate(got):
                refuse_if(memoryview(frame).readonly, f"{lengths}: a frame that came is read-only.")
                before_it = [bytes(other) for other in got]
                memoryview(frame)[:] = bytes(255 - byte for byte in before_it[number])
                apart = all(bytes(got[i]) == before_it[i] for i in range(len(got)) if i != number)
                refuse_if(not apart, f"{lengths}: the receiver wrote into one of them, and another one changed.")


class _Silence:
    """What a `MessageQueue` waits on. Here each wait with an end is over at once, and notes its seconds."""

    def __init__(self) -> None:
        self.waits: list[float | None] = []

    def get(self, block: bool = True, timeout: float | None = None) -> Message:
        self.waits.append(timeout if block else 0.0)
        if timeout is None and block:
            return 5, [b"late"]
        if len(self.waits) > 3:
            raise _LooksNowAndThenError
        raise queue.Empty

    def put(self, message: Message | None) -> None:
        """Lose a message."""


class _LooksNowAndThenError(BaseException):
    """A receive makes more than a few waits: it has a clock of its own."""


def _waits_as_asked(transport: Any, timeout: float | None) -> None:
    """Refuse a wire unless receive waits for as long as it is asked to. Nothing here takes this time."""
    silence, inbox = _Silence(), MessageQueue()
    vars(inbox)["_queue"] = silence
    wire, asked = transport.end(inbox, MessageQueue()), f"On a silent wire receive(timeout={timeout})"
    try:
        came: Any = wire.receive(timeout)
    except _LooksNowAndThenError:
        came = None
    except Exception as error:
        came = error
    waits = silence.waits
    if timeout is None:
        ended = isinstance(came, Exception)
        refuse_if(ended, f"{asked} gave up after {waits[0]} s with {came!r}. None means to wait for ever.")
        return
    longest = max((math.inf if wait is None else wait for wait in waits), default=0.0)
    refuse_if(longest > timeout + LATE_S, f"{asked} waited for {longest:g} s: look at the value of timeout.")
    if came is not None:
        refuse_if(not isinstance(came, TimeoutError), f"{asked} gave {came!r}, expected TimeoutError.")
        waited = sum(wait or 0.0 for wait in waits)
        refuse_if(waited < 0.99 * timeout, f"{asked} gave up after {waited:g} s: look at the value of timeout.")


def _gives_up(transport: StreamTransport, timeout: float) -> None:
    """Refuse a wire unless receive raises TimeoutError when nothing comes, and still receives a later message."""
    outcome: list[Any] = []

    def receive() -> None:
        try:
            outcome.append(wire.receive(timeout))
        except Exception as error:
            outcome.append(error)

    with (
        transport.listen(None) as listener,
        transport.dial(listener.address, WAIT_S) as wire,
        listener.accept() as peer,
    ):
        thread = threading.Thread(target=receive, daemon=True)
        thread.start()
        thread.join(timeout + PATIENCE_S)
        if thread.is_alive():
            wire.shutdown()
            thread.join(PATIENCE_S)
            raise Refused(f"receive(timeout={timeout:.2f}) was still waiting {PATIENCE_S:g} seconds later.")
        asked, timed_out = f"On a silent wire receive(timeout={timeout:.2f})", isinstance(outcome[0], TimeoutError)
        refuse_if(not timed_out, f"{asked} gave {outcome[0]!r}, expected TimeoutError.")
        peer.send(7, [b"late"])
        tag, frames = wire.receive(WAIT_S)
        came, late = f"the next message came as {tag, frames!r}", [bytes(frame) for frame in frames] == [b"late"]
        refuse_if(tag != 7 or not late, f"After a TimeoutError {came}, expected tag 7 and the frame b'late'.")


@asks(
    "move.2",
    "Three things must change. For which of them is it enough to move the line that starts the clock, and which need "
    "threads?",
    "A ThreadPoolExecutor(callers) has a thread for each caller. Reading the results of its map waits for all "
    "threads, and raises an error that one of them raised.",
    "Write an inner function that makes all counted calls of one caller, one after another. Within the with of the "
    "pool, map the first calls, read the clock, map the inner function, and read the clock again.",
    beside=True,
)
def calls_a_second(function: Any, rng: np.random.Generator) -> str:
    """Let all callers call at the same time, each after a first call that is not counted, and raise their errors."""
    refuse_if(not callable(function), f"Expected the function calls_a_second, got {function!r}.")
    one, few, more, many = 1, int(rng.integers(2, 9)), int(rng.integers(2, 9)), int(rng.integers(34, 48))
    for callers, turns in ((one, int(rng.integers(1, 7))), (few, 1), (more, int(rng.integers(2, 7))), (many, 2)):
        with case(f"With callers={callers} and turns={turns}"):
            crowd = _CountedCalls(callers, turns, rng)
            got = function(crowd.ask, callers, turns, crowd.clock)
            crowd.look_through()
            equals(got, callers * turns / (crowd.times[-1] - crowd.times[0]), " calls a second")
    errors = rng.permutation(np.array([ConnectionError, ValueError, KeyError, TimeoutError, RuntimeError], object))
    for number, kind in zip((0, 1, 5, 1, 5), errors, strict=True):
        with case(f"If call {number} of a caller raises a {kind.__name__}"), raising(kind):
            crowd = _CountedCalls(4, 5, rng, broken=int(rng.integers(4)), error=kind("broken"), number=number)
            function(crowd.ask, 4, 5, crowd.clock)
    return "All callers call at the same time, only first calls are not counted, and errors are raised."


class _CountedCalls:
    """Replaces a real server by one that counts calls, and the clock by one that records when it is read."""

    def __init__(
        self,
        callers: int,
        turns: int,
        rng: np.random.Generator,
        broken: int | None = None,
        error: Exception | None = None,
        number: int = 0,
    ) -> None:
        self.callers, self.turns, self._rng = callers, turns, rng
        self._broken = broken, number
        self._error = error
        self.times: list[float] = []
        self._read: list[
            tuple[list[int], int]
        ] = []  # each caller's calls, and those ended, whenever the clock was read
        self._begun, self._ended, self._busy = [0] * callers, [0] * callers, set[int]()
        self._lock, self._all, self._free = threading.Lock(), threading.Event(), threading.Event()
        self._held, self._met, self.wrong = int(rng.integers(callers)), 0, ""
        self._threads = set[threading.Thread]()

    def clock(self) -> float:
        """Return seconds that advance by random amounts."""
        with self._lock:
            self._read.append((self._begun.copy(), sum(self._ended)))
            before = self.times[-1] if self.times else float(self._rng.uniform(1, 100))
            self.times.append(before + float(self._rng.uniform(0.5, 5)))
            return self.times[-1]

    def ask(self, caller: int) -> None:
        """Answer one call. The first counted calls are answered once each caller has one under way. One randomly
        chosen caller is an exception: its first call takes a moment, and its first counted call is answered a moment
        after all calls of the others.
        """
        with self._lock:
            if caller in self._busy:
                self._stop(f"caller {caller} called again before its answer had come.")
            number = self._begun[caller]
            self._begun[caller] += 1
            self._busy.add(caller)
            self._threads.add(threading.current_thread())
        if self._error is None:
            self._take_time(caller, number)
        with self._lock:
            self._busy.discard(caller)
            self._ended[caller] += 1
            others = sum(self._ended) - self._ended[self._held]
            if others >= (self.callers - 1) * (self.turns + 1):
                self._free.set()
        if self._error and (caller, number) == self._broken:
            raise self._error

    def _take_time(self, caller: int, number: int) -> None:
        if number == 0 and caller == self._held:
            _take_a_moment()
        if number != 1:
            return
        with self._lock:
            self._met += 1
            if self._met == self.callers:
                self._all.set()
        if not _in_time(self._all, PATIENT):
            self._stop("not all callers had a call under way at the same time.")
        if caller == self._held and self.callers > 1:
            if not _in_time(self._free, PATIENT):
                self._stop(f"the callers wait for each other: caller {caller}'s call held up the others.")
            _take_a_moment()

    def _stop(self, wrong: str) -> None:
        self.wrong = self.wrong or wrong
        self._all.set()
        self._free.set()

    def look_through(self) -> None:
        """Refuse the answer if it did not make its calls as the exercise asks."""
        refuse_if(self.wrong, self.wrong)
        refuse_if(len(self._read) < 2, f"it read the clock {len(self._read)} times.")
        begun, ended = self._read[0]
        refuse_if(
            begun != [1] * self.callers or ended != self.callers,
            f"the clock started when the callers had begun {begun} calls and {ended} had ended, expected one of each.",
        )
        most = self.callers * (self.turns + 1)
        stopped = f"the clock stopped when {self._read[-1][1]} calls had ended"
        refuse_if(self._read[-1][1] != most, f"{stopped}, expected {most}, the first ones included.")
        refuse_if(set(self._begun) != {self.turns + 1}, f"the callers made {self._begun} calls.")
        left = self._threads - {threading.current_thread()}
        for _ in range(PATIENT):
            left = {thread for thread in left if thread.is_alive()}
            if not left:
                return
            time.sleep(0.002)
        raise Refused(f"it left {len(left)} threads behind.")


def _in_time(event: threading.Event, waits: int) -> bool:
    """Return True once the event is set, or False after so many waits of 2 ms."""
    return any(event.wait(0.002) for _ in range(waits))


def _take_a_moment() -> None:
    for _ in range(SHORTLY):
        time.sleep(0.002)
