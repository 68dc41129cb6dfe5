"""The exercises of "Move frames"."""

import threading
from typing import Any

import numpy as np

from minips.lab.course.exercises import Refused, asks, case, equals, is_own, keeps, raising, refuse_if
from minips.stage import Frames
from minips.stages.transports.endpoints import StreamTransport
from minips.testing import check_transport

PATIENCE_S, WAIT_S = 3.0, 10.0


@asks(
    "move.1",
    "What does send put into the queue: bytes, or a reference to the sender's list of buffers?",
    "bytearray(frame) is a copy that may be written to. And get accepts a time-out; what does it return afterwards?",
    "send puts the tag and a list of copies into the queue. receive passes the time-out to get, and raises a "
    "TimeoutError if get returns None.",
)
def queues(transport: Any, rng: np.random.Generator) -> str:
    """Mend QueueWire: send frames as copies that may be written to, and let receive give up after its timeout."""
    is_own(transport, StreamTransport, "Queues()")
    for nbytes in map(int, rng.integers(1, 5000, size=4)):
        _travels_as_a_copy(transport, rng.bytes(nbytes))
    _gives_up(transport, float(rng.uniform(0.05, 0.2)))
    keeps(check_transport, transport, cycles=10)
    return "Frames travel as copies, receive gives up in time, and Queues passes the tests of minips' own transports."


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
)
def calls_a_second(function: Any, rng: np.random.Generator) -> str:
    """Let all callers call at the same time, each after a first call that is not counted, and raise their errors."""
    refuse_if(not callable(function), f"Expected the function calls_a_second, got {function!r}.")
    for callers in (1, *map(int, rng.integers(2, 9, size=3))):
        turns = int(rng.integers(3, 7))
        with case(f"With callers={callers} and turns={turns}"):
            crowd = _CountedCalls(callers, turns, rng)
            got = function(crowd.ask, callers, turns, crowd.clock)
            crowd.look_through()
            equals(got, callers * turns / (crowd.times[-1] - crowd.times[0]), " calls a second")
    with case("If a call raises a ConnectionError"), raising(ConnectionError):
        crowd = _CountedCalls(4, 5, rng, broken=int(rng.integers(4)))
        function(crowd.ask, 4, 5, crowd.clock)
    return "All callers call at the same time, only first calls are not counted, and errors are raised."


class _CountedCalls:
    """Replaces a real server by one that counts calls, and the clock by one that records when it is read."""

    def __init__(self, callers: int, turns: int, rng: np.random.Generator, broken: int | None = None) -> None:
        self.callers, self.turns, self.broken, self._rng = callers, turns, broken, rng
        self.times: list[float] = []
        self._read: list[tuple[int, int]] = []  # the calls begun and ended whenever the clock was read
        self._begun, self._ended, self._busy = [0] * callers, [0] * callers, set[int]()
        self._lock, self._together = threading.Lock(), threading.Barrier(callers)
        self._held, self._free, self.wrong = int(rng.integers(callers)), threading.Event(), ""

    def clock(self) -> float:
        """Return seconds that advance by random amounts."""
        with self._lock:
            self._read.append((sum(self._begun), sum(self._ended)))
            before = self.times[-1] if self.times else float(self._rng.uniform(1, 100))
            self.times.append(before + float(self._rng.uniform(0.5, 5)))
            return self.times[-1]

    def ask(self, caller: int) -> None:
        """Answer one call. The first counted calls are answered once each caller has one under way. One randomly
        chosen caller is an exception: its first counted call is answered after all calls of the others.
        """
        with self._lock:
            if caller in self._busy:
                self._stop(f"caller {caller} called again before its answer had come.")
            number = self._begun[caller]
            self._begun[caller] += 1
            self._busy.add(caller)
        if number == 1:
            self._wait_for_all(caller)
        with self._lock:
            self._busy.discard(caller)
            self._ended[caller] += 1
            others = sum(self._ended) - self._ended[self._held]
            if others >= (self.callers - 1) * (self.turns + 1):
                self._free.set()
        if number == 2 and caller == self.broken:
            raise ConnectionError(f"the connection of caller {caller} broke")

    def _wait_for_all(self, caller: int) -> None:
        try:
            self._together.wait(PATIENCE_S)
        except threading.BrokenBarrierError:
            self._stop("not all callers had a call under way at the same time.")
        if caller == self._held and self.callers > 1 and self.broken is None:
            self._free.wait(PATIENCE_S)

    def _stop(self, wrong: str) -> None:
        self.wrong = self.wrong or wrong
        self._free.set()

    def look_through(self) -> None:
        """Refuse the answer if it did not make its calls as the exercise asks."""
        refuse_if(self.wrong, self.wrong)
        refuse_if(len(self._read) < 2, f"it read the clock {len(self._read)} times.")
        first = self._read[0]
        refuse_if(
            first != (self.callers, self.callers),
            f"the clock started when {first[0]} calls had begun and {first[1]} had ended, expected {self.callers}: one "
            "for each caller.",
        )
        most = self.callers * (self.turns + 1)
        ended = f"the clock stopped when {self._read[-1][1]} calls had ended"
        refuse_if(self._read[-1][1] != most, f"{ended}, expected {most}, the first ones included.")
        refuse_if(set(self._begun) != {self.turns + 1}, f"the callers made {self._begun} calls.")
