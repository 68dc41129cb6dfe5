"""Lesson 12: move frames."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import numpy as np

import minips as ps
from minips.lab.course.exercises import Refused, asks, case, is_own, keeps, refuse_if
from minips.lab.course.questions import Expected, Option, sentence, timed_estimate, timed_question, timed_sentence
from minips.stage import Frames
from minips.stages.transports import Channel
from minips.stages.transports.base import Closable
from minips.stages.transports.endpoints import StreamTransport
from minips.testing import check_transport

timed_question(
    "12.1",
    "A megabyte there and back over HTTP: how many times as long does the JSON list take as the bytes?",
    Option(
        "less than 3 times",
        lambda times: times < 3,
        "To write and parse the numbers took little more time than to move the bytes of the frame.",
    ),
    Option(
        "3 to 10 times",
        lambda times: 3 <= times <= 10,
        "To write the numbers as text and to parse them took longer than to move them, yet not by much.",
    ),
    Expected(
        "more than 10 times",
        lambda times: times > 10,
        "As JSON each number is written as decimal digits and parsed again, on both ways, one number after the other. "
        "The bytes are copied as one block.",
    ),
    otherwise="One of the two could not be measured.",
)

timed_question(
    "12.2",
    "A kilobyte there and back: how long does HTTP take, compared with minips' own TCP?",
    Option(
        "HTTP is faster",
        lambda times: times < 1,
        "A call over aiohttp and its event loops took less time in all than one over minips' TCP and its threads.",
    ),
    Option(
        "less than twice as long",
        lambda times: 1 <= times < 2,
        "What HTTP adds to each call was less than what TCP's call takes in all.",
    ),
    Expected(
        "at least twice as long",
        lambda times: times >= 2,
        "With 1 kB the bytes hardly count. For each call aiohttp makes a request and an answer and runs tasks in event "
        "loops, and minips hands the call over to these loops' threads and back. TCP does far less for a call. How "
        "much of the time is for the heads of HTTP, the next cells say.",
    ),
    otherwise="One of the two could not be measured.",
)

timed_estimate(
    "12.3",
    "40 calls at once, through one pool of at most 8 connections; the server needs 0.05 s for each, side by side. How "
    "many times as long as one call do all 40 take?",
    "× one call",
    expected=(4.5, 9.0),
    because="Eight calls are under way at a time, so 40 calls need five rounds of 0.05 s each. What is above 5 is the "
    "work of both sides for so many calls. A pool that is too small makes calls queue.",
    otherwise="Eight calls at a time would make five rounds. Either this machine was busy with something else, or the "
    "pool did not hold to its limit.",
)

timed_question(
    "12.4",
    "Most of a call's time is latency here. Ten calls, each made before the first is answered: how long do all of them "
    "take, compared with one?",
    Expected(
        "less than twice as long",
        lambda times: times < 2,
        "All ten messages are under way at the same time. Each needs 40 milliseconds there and back, and these pass "
        "once for all ten.",
    ),
    Option(
        "2 to 6 times as long",
        lambda times: 2 <= times <= 6,
        "Some of the latency passed once for several messages; the rest was waited for by each call.",
    ),
    Option(
        "more than 6 times as long",
        lambda times: times > 6,
        "The messages went one after the other: each waited for an answer, or the sender was slow.",
    ),
    otherwise="One of the two could not be measured.",
)

timed_estimate(
    "12.5",
    "Ten calls with 10 MB each, all made before the first is answered: how many times as long as one such call do they "
    "take?",
    "× one call",
    expected=(6.0, 9.0),
    because="One call: 0.08 s to send and 0.04 s of latency, 0.12 s. Ten calls: the link sends one message after the "
    "other, which takes 0.8 s, and the latency of 0.04 s passes once: 0.84 s, or 7 times as long. Futures hide "
    "latency. They add no bandwidth.",
    otherwise="Ten messages need ten times 0.08 s on the link, and the latency of 0.04 s once: 0.84 s. One needs "
    "0.12 s. Either this machine could not keep up with the link, or the link did not hold the messages back.",
)

timed_sentence(
    "12.1",
    "The JSON text has {characters:.0f} characters for each number of 4 bytes. Its call takes {times.median:.0f} times "
    "as long as that with the bytes (median of {turns} paired turns, quartiles {times.low:.0f} to {times.high:.0f}).",
    expect="characters > 16 and times.low > 10",
)

timed_sentence(
    "12.2",
    "A call of 1 kB: HTTP takes {times.median:.1f} times as long as TCP (median of {rounds} rounds, quartiles "
    "{times.low:.1f} to {times.high:.1f}).",
    expect="times.median > 2",
)

timed_sentence(
    "12.12",
    "Of the time of a call over minips' Http (medians and quartiles of 200): to parse both heads takes "
    "{parse.median:.1%} ({parse.low:.1%} to {parse.high:.1%}), to hand over one task and wait for it {hand.median:.0%} "
    "({hand.low:.0%} to {hand.high:.0%}), aiohttp alone {alone.median:.0%} ({alone.low:.0%} to {alone.high:.0%}). So "
    "the heads are a small part. What is left over, minips' own work among it, is not divided further here.",
    expect="parse.median < 0.2 and alone.median > 2 * parse.median and hand.median > parse.median",
)

timed_sentence(
    "12.3",
    "{label}, from the fastest to the slowest: {order}. {slow} takes {times.median:.1f} times as long as {fast} "
    "(quartiles {times.low:.1f} to {times.high:.1f}).",
    expect="times.low > 1.5",
)

sentence(
    "12.28",
    "serpent writes 1,000,000 bytes as {text:,}, MessagePack as {packed:,}.",
    expect="text > 1.3e6 and packed < 1.001e6",
)

timed_sentence(
    "12.4",
    "1 MB there and back: Pyro with serpent takes {serpent.median:.0f} times as long as TCP (median of {rounds} "
    "rounds, quartiles {serpent.low:.0f} to {serpent.high:.0f}), Pyro with MessagePack {msgpack.median:.1f} times "
    "({msgpack.low:.1f} to {msgpack.high:.1f}).",
    expect="serpent.low > 3 * msgpack.high and msgpack.median > 1",
)

timed_sentence(
    "12.5",
    "minips' Pyro is number {place} of the {all} transports of minips that took part, at 1 MB: it takes "
    "{times.median:.1f} times as long as TCP (median of {rounds} rounds, quartiles {times.low:.1f} to "
    "{times.high:.1f}). So this one is relatively slow too.",
    expect="place > all / 2 and times.low > 1.5",
)

sentence(
    "12.13",
    "No .proto file, and the answers are {answer} and, with asyncio, {awaited}.",
    expect="answer == 'NO .PROTO ANYWHERE' and awaited == 'NOR HERE'",
)

sentence(
    "12.14",
    "One call; sent: {sent}, answered: {totals}.",
    expect="sent == [100, 20, 3] and totals == [100, 120, 123]",
)

sentence(
    "12.15",
    "{size} values arrived, as an array of shape {shape} and dtype {dtype}. A number in the place of a name was "
    "refused: {refused}.",
    expect="size == 6 and shape == [2, 3] and dtype == 'float32' and refused",
)

sentence(
    "12.16",
    "ZeroMQ raised no error; an answer came: {answered}. minips' Zmq, which asks whether anybody is there: {ours}.",
    expect="not answered and ours == 'ConnectionError'",
)

sentence(
    "12.17",
    "Connections for 40 calls: {as_in_the_lecture} as in the lecture, {one_after_another} for one call after another, "
    "{all_at_once} for all calls at once through a pool of at most 8.",
    expect="as_in_the_lecture == 40 and one_after_another == 1 and all_at_once == 8",
)

timed_sentence(
    "12.18",
    "With 4 connections the 40 calls take {small.median:.1f} times as long as one call (median of {turns} turns, "
    "quartiles {small.low:.1f} to {small.high:.1f}), with 40 connections {large.median:.1f} times ({large.low:.1f} to "
    "{large.high:.1f}).",
    expect="small.median > 7 and large.median < small.median / 2",
)

timed_sentence(
    "12.6",
    "With pool=0 a call takes {times.median:.2f} times as long (median of 60 pairs, quartiles {times.low:.2f} to "
    "{times.high:.2f}).",
    expect="times.median > 1",
)

timed_sentence(
    "12.7",
    "Over two connections the 32 MB take {share.median:.0%} of the time over one (median of {rounds} pairs, quartiles "
    "{share.low:.0%} to {share.high:.0%}).",
    expect="0.3 < share.median < 2",
)

timed_sentence(
    "12.19",
    "After 0.1 s there came: {came}. Calls handled so far: {before}. Later: {later}. Calls handled: {handled}.",
    expect="came == 'TimeoutError' and before == 0 and later == 'TAKE YOUR TIME' and handled == 1",
)

timed_sentence(
    "12.20",
    "gRPC's deadline: {came} at the caller. Was the server told? {told}.",
    expect="came == 'DEADLINE_EXCEEDED' and told == 'yes'",
)

timed_sentence(
    "12.21",
    "aiohttp, three calls through a pool of one: with enough time they open {enough} connection, and {short} where "
    "each call times out.",
    expect="enough == 1 and short == 3",
)

sentence(
    "12.22",
    "{answer} after one call of the caller and {served} at the server.",
    expect="answer == 'ONCE MORE' and served == 3",
)

sentence(
    "12.26",
    "Within a hundredth of a second there come {doubled} workers of 200 when the waits only double, and {least} to "
    "{most} when they are drawn as well (five seeds).",
    expect="doubled == 200 and most < 50",
)

sentence(
    "12.23",
    "With the server there: {first}. Without it: {second}. With a new server at the same address: {third}.",
    expect="first == 'HERE' and second == 'ConnectionError' and third == 'BACK AGAIN'",
)

timed_sentence(
    "12.8",
    "1 byte each: ten futures take {times.median:.2f} times as long as one call (median of {turns} turns, quartiles "
    "{times.low:.2f} to {times.high:.2f}).",
    expect="times.median < 2",
)

timed_sentence(
    "12.9",
    "10 MB each: ten futures take {times.median:.1f} times as long as one call (median of {turns} turns, quartiles "
    "{times.low:.1f} to {times.high:.1f}).",
    expect="times.median > 5",
)

timed_sentence(
    "12.11",
    "Worker 0 computes while its message travels for {waiting:.0%} of its computing time when it waits "
    "for each answer, and for {overlap:.0%} with overlap.",
    expect="waiting < 0.01 and overlap > 0.5",
)

timed_sentence(
    "12.24",
    "A step of a worker that waits takes {times.median:.2f} times as long as one with overlap (median of 19 steps, "
    "quartiles {times.low:.2f} to {times.high:.2f}).",
    expect="1.3 < times.median < 2.3",
)

sentence("12.10", "Staleness with overlap: at most {stale} version.", expect="stale == 1")

timed_sentence(
    "12.25",
    "After a pause a call of 1 kB takes {times.median:.1f} times as long as one right after another (medians of 100 "
    "calls, quartiles {times.low:.1f} to {times.high:.1f}).",
    expect="times.median > 1.3",
)

sentence(
    "12.27",
    "Your transport carried the messages of four workers, and the model reads {accuracy:.0%} of the held-out digits. "
    "Is it among minips' transports? {listed}.",
    expect="accuracy > 0.9 and listed == 'yes'",
)


PATIENCE_S, WAIT_S, BASE_S = 3.0, 10.0, 0.05


@asks(
    "12.1",
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
    "12.2",
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
    "12.3",
    "A loop over range(attempts), with try and except ConnectionError in it, and return where it works.",
    "On the last attempt let the error through: a bare raise within except does that. After any other, wait: when the "
    "with has ended, its channel is closed.",
    "A for with a try in it: the try holds the with and a return, the except decides whether this was the last "
    "attempt. Last in the loop comes sleep(rng.uniform(0, bound)); what is the bound for attempt 0, 1, 2?",
)
def call_again(function: Any, rng: np.random.Generator) -> str:
    """Make call_again try again after a ConnectionError, with a fresh channel and after a random wait whose bound
    doubles, at most `attempts` times in all.
    """
    refuse_if(not callable(function), f"Expected the function call_again, got {function!r}.")
    shares: dict[bool, list[float]] = {True: [], False: []}
    for turn in range(120):
        failing = rng.choice(["refused", "cut", "lost"], size=int(rng.integers(0, 5))).tolist()
        fates = [*failing, ("answer", "error", "lost")[turn % 3]]
        attempts = int(rng.integers(1, len(fates) + (1 if fates[-1] == "lost" else 2)))
        with case(f"With attempts={attempts} and channels that end with {', '.join(fates[:attempts])}"):
            for number, share in enumerate(_breaks(function, fates, attempts, rng)):
                shares[number == 0].append(share)
    for which, found in (("the second try", shares[True]), ("later tries", shares[False])):
        within = f"the waits before {which} were {min(found):.0%} to {max(found):.0%} of their bounds"
        refuse_if(min(found) > 0.4 or max(found) < 0.6, f"Of {len(found)} draws {within}; 0 to 100% is asked for.")
    return "Right for 120 random mishaps: fresh channels, random waits, no try too many, and every channel closed."


def _breaks(function: Callable[..., Any], fates: list[str], attempts: int, rng: np.random.Generator) -> list[float]:
    """One call whose channels break as the fates say, one after the other; the waits, as shares of their bounds."""
    made: list[_Fated] = []
    shares: list[float] = []

    def connect() -> Channel:
        fate = fates[len(made)] if len(made) < len(fates) else "answer"
        refuse_if(len(shares) < len(made), f"it tried again without a wait, after try {len(made)}.")
        made.append(_Fated(fate, ConnectionError(f"attempt {len(made) + 1}")))
        return made[-1].opened()

    def sleep(seconds: float) -> None:
        bound = BASE_S * 2 ** len(shares)
        waited = f"wait {len(shares) + 1} was {seconds:.3f} s"
        refuse_if(not 0 <= seconds <= bound, f"{waited}, expected 0 to {bound:g} s.")
        refuse_if(any(channel.open for channel in made), f"{waited}, and a channel was open meanwhile.")
        shares.append(seconds / bound)
        refuse_if(len(shares) > len(made), f"it waited {len(shares)} times for {len(made)} tries.")

    try:
        got: Any = function(connect, [b"frame"], attempts, sleep, rng)
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
    refuse_if(
        len(shares) != tries - 1, f"it waited {len(shares)} times, expected {tries - 1}: before each further try."
    )
    return shares


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
