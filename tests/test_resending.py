"""Resending without threads: requests arrive in order, and each is answered or fails once."""

import random
from functools import partial

import pytest

import minips as ps
from minips.core.limits import MOST_BREAKS
from minips.core.protocol import ServerRecord, WorkerProtocol
from minips.core.resending import PAUSES_S, Dial, Pause, Resend, Resending, hello_again
from minips.core.sessions import Receive, Send, carry_out
from minips.stages.transports.framing import TooLargeError

REQUESTS = 12
HELLO = "hello"
CUT = 0.1


class Request:
    def __init__(self, world, number, last=False):
        self.world, self.number, self.last, self.breaks = world, number, last, 0
        self.frames, self.outcome = [b"%d" % number], None

    def arrived(self, frames):
        assert self.outcome is None
        self.outcome = frames

    def failed(self, error):
        world = self.world
        connected = world.resending.broken is None
        if failure := world.resending.failed(self, error):
            self.arrived(failure)
        if connected and world.resending.broken:
            world.first, world.reconnecting = error, world.resending.reconnect()
            world.need = next(world.reconnecting)


class World:
    """A worker, a server and their connection; each `step` is drawn."""

    def __init__(self, seed, pauses_s=PAUSES_S):
        self.rng = random.Random(seed)
        self.resending = Resending(self.hello, pauses_s)
        self.reconnecting = self.need = None
        self.requests = []
        self.alive, self.sent, self.lost = True, [], []
        """The connection, the requests on it that are not answered, and those that it has lost and not yet failed."""
        self.first = None
        """The error that broke the last connection that worked."""
        self.pauses_s, self.cuts, self.resent = [], 0, [[]]
        """``resent``: for each connection, the requests that were sent again over it."""

    def hello(self):
        yield HELLO

    def step(self):
        deeds = [self.ask] if len(self.requests) < REQUESTS else []
        deeds += [self.answer, self.answer] if self.sent else []
        deeds += [self.go_on, self.go_on] if self.reconnecting else []
        deeds += [self.notice] if self.lost else []
        if self.rng.random() < CUT:
            self.cut()
        elif deeds:
            self.rng.choice(deeds)()

    def ask(self):
        request = Request(self, len(self.requests))
        self.requests.append(request)
        try:
            if self.resending.ask(request):
                self.send(request)
        except ConnectionError as error:
            request.failed(error)

    def answer(self):
        request = self.sent.pop(0)
        request.arrived(request.frames)

    def cut(self):
        self.cuts += self.alive
        self.alive, self.lost, self.sent = False, self.lost + self.sent, []

    def notice(self):
        """Fail a request that was lost, in any order, since several threads may notice it."""
        lost = self.lost.pop(self.rng.randrange(len(self.lost)))
        lost.failed(ConnectionError(f"Cut {self.cuts}."))

    def send(self, request):
        if self.alive:
            earlier = [one for one in self.requests[: request.number] if one.outcome is None]
            assert earlier == self.sent, "a request was overtaken"
            self.sent.append(request)
            return
        fate = self.rng.randrange(3)
        if fate == 0:
            raise ConnectionError("The connection was cut before.")
        self.lost.append(request)
        if fate == 1:
            self.notice()

    def go_on(self):
        """Meet what `reconnect` needs now, and hear what it needs next."""
        error = None
        if isinstance(self.need, Pause):
            self.pauses_s.append(self.need.seconds)
        elif isinstance(self.need, Dial):
            self.cut()
            while self.lost:
                self.notice()
            self.alive = self.rng.random() < 0.6
            self.resent.append([])
            error = None if self.alive else ConnectionError("Nobody answers.")
        elif self.need is HELLO:
            error = None if self.alive else ConnectionError("The connection was cut before.")
        else:
            assert isinstance(self.need, Resend)
            assert self.need.request not in self.resent[-1], "sent twice over one connection"
            self.resent[-1].append(self.need.request)
            try:
                self.send(self.need.request)
                if self.rng.random() < CUT:
                    self.cut()
            except ConnectionError as raised:
                error = raised
        try:
            self.need = self.reconnecting.send(None) if error is None else self.reconnecting.throw(error)
        except StopIteration as end:
            self.reconnecting = None
            for request in end.value:
                request.failed(self.resending.broken)


def run(seed, pauses_s=PAUSES_S):
    world = World(seed, pauses_s)
    for _ in range(400):
        world.step()
    while any(request.outcome is None for request in world.requests):
        world.notice() if world.lost else world.go_on() if world.reconnecting else world.answer()
    return world


def test_requests_arrive_in_order_and_each_is_answered_or_fails_once():
    given_up = resent = 0
    for seed in range(300):
        world = run(seed)
        answered = [one for one in world.requests if not isinstance(one.outcome, Exception)]
        failures = [one.outcome for one in world.requests if one not in answered]
        assert all(one.outcome is one.frames for one in answered), "not the same bytes"
        assert bool(failures) <= world.resending.over
        assert set(failures) <= {world.first}
        if world.resending.over:
            given_up += 1
            assert world.pauses_s[-len(PAUSES_S) :] == [*PAUSES_S]
        resent += sum(map(len, world.resent))
    assert 30 < given_up < 270
    assert resent > 1000


def test_a_request_that_is_too_large_fails_alone():
    world = World(0)
    requests = world.requests = [Request(world, number) for number in range(3)]
    requests[1].failed(TooLargeError("It is too large."))
    assert isinstance(world.need, Pause), "the others' connection is gone, too"
    for request in (requests[2], requests[0]):
        assert world.resending.failed(request, ConnectionError("The wire broke.")) is None
    assert isinstance(requests[1].outcome, TooLargeError)
    while world.reconnecting:
        world.go_on()
    assert [one.number for one in world.sent] == [0, 2]


def test_a_message_over_which_many_connections_break_is_blamed():
    resending = Resending(lambda: iter(()), pauses_s=[0.0] * 2 * MOST_BREAKS)
    request = Request(None, 0)
    told = [resending.failed(request, ConnectionError("The wire broke.")) for _ in range(MOST_BREAKS)]
    assert told[:-1] == [None] * (MOST_BREAKS - 1)
    assert isinstance(told[-1], TooLargeError)
    assert f"{MOST_BREAKS} connections ended like this" in str(told[-1])


@pytest.mark.parametrize(
    ("error", "last", "pauses_s"),
    [
        (ValueError("No."), False, PAUSES_S),
        (ConnectionError("Cut."), True, PAUSES_S),
        (ConnectionError("Cut."), False, ()),
    ],
)
def test_what_is_not_sent_again_fails_and_breaks_nothing(error, last, pauses_s):
    resending = Resending(lambda: iter(()), pauses_s)
    assert resending.failed(Request(None, 0, last), error) is error
    assert resending.broken is None


def test_a_driver_that_closes_the_connection_ends_the_attempts():
    world = World(0)
    request = Request(world, 0)
    request.failed(ConnectionError("The wire broke."))
    world.resending.over = True
    world.go_on()
    assert world.reconnecting is None
    assert str(request.outcome) == "The wire broke."
    with pytest.raises(ConnectionError, match="The wire broke"):
        world.resending.ask(Request(world, 1))


@pytest.mark.parametrize("secret", ["", "0" * 32])
def test_a_refused_hello_is_repeated_only_if_the_answer_to_the_first_one_was_lost(secret):
    record = ServerRecord(ps.Config(workers=1), 0, 0, ps.Trace())
    record.secret = secret
    resending = Resending(partial(hello_again, WorkerProtocol(0, [record]), 0))
    request = Request(None, 0)
    resending.failed(request, ConnectionError("The wire broke."))
    needs = []

    def refuse(need):
        needs.append(need)
        raise ValueError("Worker 0 is held by another session.")

    failing = carry_out(resending.reconnect(), {**dict.fromkeys((Pause, Dial, Send), needs.append), Receive: refuse})
    assert [type(need) for need in needs] == [Pause, Dial, Send, Receive] * (1 if secret else len(PAUSES_S))
    assert failing == [request]
    assert str(resending.broken) == ("Worker 0 is held by another session." if secret else "The wire broke.")
