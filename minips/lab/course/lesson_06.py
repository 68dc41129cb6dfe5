"""Lesson 06: move frames."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import numpy as np

import minips as ps
from minips.lab.course.exercises import Refused, asks, case, is_own, keeps, refuse_if
from minips.lab.course.questions import Option, question, sentence
from minips.stage import Frames
from minips.stages.transports import Channel
from minips.stages.transports.streams import StreamTransport
from minips.stages.transports.wire import Closable
from minips.testing import check_transport

question(
    "06.1",
    "A megabyte there and back over HTTP: how many times longer does the JSON list take than the bytes?",
    Option("less than 3 times", lambda TODO: False, "TODO"),
    Option("3 to 10 times", lambda TODO: False, "TODO"),
    Option(
        "more than 10 times",
        lambda TODO: False,
        "As JSON each number is written as decimal digits and parsed again, on both ways, one number after "
        "the other. The bytes are copied as one block.",
    ),
    expected="more than 10 times",
    otherwise="TODO",
    telling=[],
)

question(
    "06.2",
    "A kilobyte there and back: how long does HTTP take, compared with minips' own TCP?",
    Option("HTTP is faster", lambda TODO: False, "TODO"),
    Option("about as long: less than twice", lambda TODO: False, "TODO"),
    Option(
        "at least twice as long",
        lambda TODO: False,
        "With 1 kB the bytes hardly count. HTTP writes and parses headers in Python for each call, and passes"
        " through an event loop. TCP adds a few bytes of its own.",
    ),
    expected="at least twice as long",
    otherwise="TODO",
    telling=[],
)

question(
    "06.3",
    "40 calls through one pool of at most 8 connections, all at once: how many connections are opened?",
    Option("1", lambda TODO: False, "TODO"),
    Option(
        "8",
        lambda TODO: False,
        "One connection carries one HTTP call at a time. 40 calls at once would like 40 connections, the pool"
        " allows 8, and the other calls wait in a queue for a free one.",
    ),
    Option("40", lambda TODO: False, "TODO"),
    expected="8",
    otherwise="TODO",
    telling=[],
)

question(
    "06.4",
    "A call is nearly all travel. Ten calls, each sent before the first is answered: how long do all of them take?",
    Option("about ten times as long as one", lambda TODO: False, "TODO"),
    Option("about half of that", lambda TODO: False, "TODO"),
    Option(
        "about as long as one",
        lambda TODO: False,
        "All ten messages are under way at the same time. Each needs 40 milliseconds of travel, and these "
        "pass once for all ten.",
    ),
    expected="about as long as one",
    otherwise="TODO",
    telling=[],
)

sentence(
    "06.1",
    "The JSON text has {characters:.0f} characters for each number of 4 bytes. Its call takes {times:.0f}"
    " times as long.",
    expect="characters > 16 and times > 10",
    timed=True,
)

sentence("06.2", "A call of 1 kB: HTTP takes {times:.1f} times as long as TCP.", expect="times > 2", timed=True)

sentence("06.3", "{label}: {slow} takes {times:.0f} times as long as {fast}.")

sentence(
    "06.4",
    "To write and read the frame takes {times:.0f} times as long with serpent as with MessagePack.",
    expect="times > 10",
    timed=True,
)

sentence(
    "06.5",
    "For 1 kB, Pyro with MessagePack is number {place} of minips' {all}; for 1 MB, its call takes "
    "{share:.1%} of JSON's.",
    expect="share < 0.1",
    timed=True,
)

sentence(
    "06.6", "With pool=0 a call takes {times:.2f} times as long (medians of 60 calls).", expect="times > 1", timed=True
)

sentence(
    "06.7", "Over two connections the 32 MB take {share:.0%} of the time over one (medians of 20 calls).", timed=True
)

sentence("06.8", "Ten futures take {times:.1f} times as long as one call.", expect="times < 2", timed=True)

sentence(
    "06.9",
    "Worker 0 computes while its message travels for {waiting:.0%} of its computing time when it waits "
    "for each answer, and for {overlap:.0%} with overlap.",
    expect="waiting < 0.01 and overlap > 0.5",
    timed=True,
)

sentence("06.10", "Staleness with overlap: at most {stale} version.", expect="stale == 1")


PATIENCE_S, WAIT_S = 3.0, 10.0


@asks(
    "06.1",
    "What does send put into the queue: bytes, or a reference to the sender's list of buffers?",
    "bytearray(frame) is a copy that may be written to. And queue.get takes a timeout; look at what it raises then.",
    "send puts the tag and a list of copies. receive gets them within the time-out, and turns the queue's own error "
    "into a TimeoutError.",
)
def queues(transport: Any, rng: np.random.Generator) -> str:
    """Mend QueueWire: frames travel as copies that may be written to, and receive gives up after its timeout."""
    is_own(transport, StreamTransport, "Queues()")
    for nbytes in map(int, rng.integers(1, 5000, size=4)):
        _travels_as_a_copy(transport, rng.bytes(nbytes))
    _gives_up(transport, float(rng.uniform(0.05, 0.2)))
    keeps(check_transport, transport, cycles=10)
    return "Frames travel as copies, a wire gives up in time, and it does all that minips' own transports do."


def _travels_as_a_copy(transport: StreamTransport, content: bytes) -> None:
    kept: list[bytearray] = []

    def handler(frames: Frames) -> Frames:
        came = memoryview(frames[0])
        refuse_if(came.readonly, f"A frame of {len(content)} bytes came, and the handler may not write into it.")
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
        refuse_if(back.readonly, f"An answer of {len(content)} bytes came, and the caller may not write into it.")
        back[-1] ^= 255
        refuse_if(kept[0] != content, "The caller wrote into the answer that it got, and the server's buffer changed.")


def _gives_up(transport: StreamTransport, timeout: float) -> None:
    """A wire on which nothing comes: TimeoutError, and what comes later is still received."""
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
    "06.2",
    "Open the channel once, before the loop.",
    "Collect the futures in a list first; ask for their results when all questions have been sent.",
    "Two list comprehensions within one with: the first one calls, the second one waits.",
)
def ask_all(function: Any, rng: np.random.Generator) -> str:
    """Make ask_all use one connection, with all questions under way at once, and answers in order."""
    refuse_if(not callable(function), f"Expected the function ask_all, got {function!r}.")
    for n in (1, *map(int, rng.integers(2, 12, size=3))):
        questions: list[Frames] = [[rng.bytes(int(rng.integers(1, 50))) for _ in range(2)] for _ in range(n)]
        watched = _Watched(n)
        with case(f"For {n} questions"):
            with watched, ps.InProc().serve(watched.answer, token="check") as endpoint:
                answers = function(watched, endpoint.address, "check", questions)
            opened = len(watched.channels)
            refuse_if(opened != 1, f"it opened {opened} connections; one is asked for.")
            refuse_if(watched.asked != n, f"it made {watched.asked} calls.")
            refuse_if(watched.late, f"it waited for an answer when only {watched.late} had been asked.")
            got = [[bytes(frame) for frame in answer] for answer in answers]
            wanted = [[bytes(frame)[::-1] for frame in question] for question in questions]
            refuse_if(got != wanted and sorted(got) == sorted(wanted), "the answers came in another order.")
            refuse_if(got != wanted, f"it returned {len(got)} answers, and not those of the server.")
            refuse_if(watched.left_open, "it left a connection open. Use with.")
    return "One connection, all questions under way at once, answers in order."


class _Watched(Closable):
    """A transport that records its caller's calls; the first is answered when all have been made."""

    def __init__(self, n: int) -> None:
        self.asked = self.late = 0
        self.channels: list[_WatchedChannel] = []
        self._n, self._all = n, threading.Event()

    def connect(self, address: str, token: str = "", timeout: float = 10.0) -> Channel:
        self.channels.append(_WatchedChannel(self, ps.InProc().connect(address, token, timeout)))
        return self.channels[-1]

    def close(self) -> None:
        self.left_open = any(channel.open for channel in self.channels)
        for channel in self.channels:
            channel.close()

    def ask(self) -> None:
        self.asked += 1
        if self.asked == self._n:
            self._all.set()

    def answer(self, frames: Frames) -> Frames:
        if not (self.late or self._all.wait(PATIENCE_S)):
            self.late = self.asked
        return [bytes(frame)[::-1] for frame in frames]


class _WatchedChannel(Channel):
    def __init__(self, watched: _Watched, channel: Channel) -> None:
        self._watched, self._channel, self.open = watched, channel, True

    def call(self, frames: Frames) -> "Future[Frames]":
        future = self._channel.call(frames)
        self._watched.ask()
        return future

    def close(self) -> None:
        self.open = False
        self._channel.close()


@asks(
    "06.3",
    "A loop over range(attempts), with try and except ConnectionError in it, and return where it works.",
    "On the last attempt let the error through: a bare raise within except does that.",
    "A for with a try in it: the try holds the with and a return, the except decides whether this was the last "
    "attempt.",
)
def call_again(function: Any, rng: np.random.Generator) -> str:
    """Make call_again try again after a ConnectionError, with a fresh channel, at most `attempts` times in all."""
    refuse_if(not callable(function), f"Expected the function call_again, got {function!r}.")
    for turn in range(60):
        failing = rng.choice(["refused", "cut", "lost"], size=int(rng.integers(0, 5))).tolist()
        fates = [*failing, ("answer", "error", "lost")[turn % 3]]
        attempts = int(rng.integers(1, len(fates) + (1 if fates[-1] == "lost" else 2)))
        with case(f"With attempts={attempts} and channels that end with {', '.join(fates[:attempts])}"):
            _breaks(function, fates, attempts)
    return "Right for 60 random mishaps: fresh channels, no try too many, and every channel closed."


def _breaks(function: Callable[..., Any], fates: list[str], attempts: int) -> None:
    """One call whose channels break as the fates say, one after the other."""
    made: list[_Fated] = []

    def connect() -> Channel:
        fate = fates[len(made)] if len(made) < len(fates) else "answer"
        made.append(_Fated(fate, ConnectionError(f"attempt {len(made) + 1}")))
        return made[-1].opened()

    try:
        got: Any = function(connect, [b"frame"], attempts)
    except (ConnectionError, TimeoutError) as error:
        got = error
    tries = min(attempts, len(fates))
    refuse_if(len(made) != tries, f"it tried {len(made)} times, expected {tries}.")
    wanted = {"answer": "the answer", "error": "TimeoutError"}.get(fates[tries - 1], "ConnectionError")
    came = "the answer" if got == [b"answer"] else type(got).__name__
    refuse_if(came != wanted, f"there came {came}, expected {wanted}.")
    another = isinstance(got, ConnectionError) and str(got) != f"attempt {tries}"
    refuse_if(another, f"the ConnectionError of {got} came out, expected that of attempt {tries}.")
    left_open = sum(channel.open for channel in made)
    refuse_if(left_open, f"it left {left_open} channels open. Use with.")
    again = any(channel.calls > 1 for channel in made)
    refuse_if(again, "it called again over a channel that had broken. Make a fresh one.")


class _Fated(Channel):
    """A channel that ends as it is fated to."""

    def __init__(self, fate: str, error: ConnectionError) -> None:
        self.fate, self.error, self.calls, self.open = fate, error, 0, False

    def opened(self) -> Channel:
        if self.fate == "refused":
            raise self.error
        self.open = True
        return self

    def call(self, frames: Frames) -> "Future[Frames]":
        self.calls += 1
        if self.fate == "cut":
            raise self.error
        future: Future[Frames] = Future()
        if self.fate == "answer":
            future.set_result([b"answer"])
        else:
            future.set_exception(self.error if self.fate == "lost" else TimeoutError("the handler's own error"))
        return future

    def close(self) -> None:
        self.open = False
