"""A server's shard, membership and sessions, carried out in this thread, in any order of events: as the reference says.

A request that has to wait is put aside, and goes on as soon as it may. Time is virtual, in halves of a second.
"""

import copy
import dataclasses
from functools import partial
from math import inf

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from reference import FRESH, LR, MOMENTUM, REJOIN_S, SILENCE_S, Reference

import minips as ps
from minips.core import recovery
from minips.core.codec import Decoder, Encoder, unpack
from minips.core.journal import from_frames, to_frames
from minips.core.membership import ClientConnection
from minips.core.message import Message
from minips.core.partition import partition
from minips.core.protocol import ServerProtocol
from minips.core.sessions import Do
from minips.core.shard import Shard
from minips.core.states import RunState

WORKERS = 3
RULES = {
    "bsp": (ps.BSP(), 3, 0),
    "backup": (ps.BSP(backup=1), 2, 0),
    "ssp": (ps.SSP(1), None, 1),
    "asp": (ps.ASP(), None, inf),
}
"""Each with its quorum and its staleness."""
WRONG, UNKNOWN = "no secret", "f" * 32
RESERVED = [str(worker) * 32 for worker in range(WORKERS)]
OPTIMIZER = ps.SGD(lr=LR, momentum=MOMENTUM)
GRADIENTS = [1.0, 1e-9, -3.7e5, 0.1, float("nan"), 1.7e308]
"""Of very different sizes, so that the order of a sum shows; a few of the last end a run."""

workers = st.integers(0, WORKERS - 1)
often = st.sampled_from([True, True, False])
seldom = st.integers(0, 7).map(lambda drawn: drawn == 7)
IN_TURN = {
    "order": st.permutations(range(WORKERS)),
    "count": st.sampled_from([1, 2, 2, 3]),
    "times": st.sampled_from([1, 1, 3]),
    "lag": st.integers(0, 1),
    "twice": seldom,
    "slow": st.booleans(),
    "crashes": seldom,
}


class Request:
    """A request to the server, and the same to the reference; both wait, or neither."""

    def __init__(self, real, model):
        self.real, self.model = real, model
        self.ready = self.ought = lambda: True

    def carry_on(self, error=None):
        """Carry both on until they wait, and compare. Returns False if they wait."""
        told, ought = self._real(error), self._model(error)
        if told is None or ought is None:
            assert told is ought, (told, ought)
        elif isinstance(ought, Exception):
            assert isinstance(told, type(ought)), (told, ought)
            assert str(ought) in str(told)
        else:
            assert told == ought
        return told is not None

    def _real(self, error):
        send = partial(self.real.send, None) if error is None else partial(self.real.throw, error)
        try:
            while True:
                need = send()
                if type(need) is not Do:
                    self.ready = need.ready
                    if not need.ready():
                        return None
                    send = partial(self.real.send, None)
                    continue
                try:
                    send = partial(self.real.send, need.call())
                except Exception as raised:
                    send = partial(self.real.throw, raised)
        except StopIteration as end:
            packet, stamp, *_ = unpack(end.value, ps.Codec(), ps.Trace())
            answer = Decoder(ps.Trace()).decode(packet)
            pulled = answer.tensors["w"].item() if answer.tensors else None
            return stamp["clock"], stamp["done"], stamp["outcome"], answer.header["version"], pulled
        except (ValueError, TimeoutError) as raised:
            return raised

    def _model(self, error):
        try:
            self.ought = next(self.model) if error is None else self.model.throw(error)
        except StopIteration as end:
            return end.value
        except (ValueError, TimeoutError) as raised:
            return raised
        return None

    def close(self):
        self.real.close(), self.model.close()


class Server(RuleBasedStateMachine):
    @initialize(
        rule=st.sampled_from([*RULES, "backup"]),
        updates=st.sampled_from([None, None, 9, 24]),
        every=st.sampled_from([inf, 6]),
        reserved=st.sampled_from([False, False, True]),
        here=st.sets(workers, min_size=2),
    )
    def begin(self, rule, updates, every, reserved, here):
        consistency, quorum, staleness = RULES[rule]
        self.now, self.waiting, self.timers, self.last, self.owns = (
            0.0,
            [],
            [],
            None,
            [ClientConnection() for _ in range(WORKERS)],
        )
        self.config = ps.Config(workers=WORKERS, consistency=consistency, optimizer=OPTIMIZER)
        self.options = {"updates": updates, "every": every, "now": lambda: self.now}
        self.secrets = RESERVED if reserved else []
        self.model = Reference(WORKERS, quorum, staleness, inf if updates is None else updates, every, self.secrets)
        self.start(np.array([1.0]))
        self.take_snapshot()
        for worker in here:
            self.hello(worker, self.secrets[worker] if reserved else None, "own", False)

    def start(self, w):
        """A new process of the server."""
        self.shard = Shard.of(self.config, {"w": w}, **self.options)
        layout = partition({"w": w}, 1)[0]
        times = {"silence_s": SILENCE_S, "rejoin_s": REJOIN_S, "rank_secrets": self.secrets}
        journal = lambda record: self.records.append(to_frames(record))  # noqa: E731
        self.protocol = ServerProtocol(self.shard, self.config, 0, layout, ps.Trace(), journal=journal, **times)

    def ask(self, kind, connection, worker, **header):
        self.model.now = self.now
        gradient = header.pop("gradient", None)
        tensors = {} if gradient is None else {"w": np.array([gradient])}
        message = Message({"kind": kind, "worker": worker, **header}, tensors)
        frames = Encoder(ps.Codec(), np.random.default_rng(0), ps.Trace()).encode(message)
        pushed = {} if gradient is None else {"gradient": gradient}
        request = Request(
            self.protocol.answer(frames, connection, self.now),
            self.model.answer(kind, connection, worker, **header, **pushed),
        )
        if not request.carry_on():
            self.waiting.append(request)
        self.settle()

    def settle(self):
        """Carry on with whatever may go on now, the oldest first; then compare all that can be seen."""
        self.compare()
        while ready := [request for request in self.waiting if request.ready()]:
            assert ready[0].ought()
            if ready[0].carry_on():
                self.waiting.remove(ready[0])
            self.compare()
        assert not any(request.ought() for request in self.waiting)

    def compare(self):
        shard, model, members = self.shard, self.model, self.protocol.membership.members
        for member, other in zip(members, model.members, strict=True):
            if other.secret is FRESH:
                assert len(member.secret) == 32
                other.secret = member.secret
            told = member.state.word, member.secret, member.connections, member.lost_at, member.busy, member.heard
            assert told == (other.state, other.secret, other.links, other.lost_at, other.busy, other.heard)
        assert shard.params["w"].tolist() == [model.p]
        counts = shard.version, shard.rounds, shard.applied, shard.made, shard.late, shard.duplicates
        assert counts == (model.version, model.rounds, model.applied, model.made, model.late, model.duplicates)
        assert (shard.clocks, shard.live, {*shard._held}) == (model.clocks, model.live, {*model.held})
        assert (shard.done, shard.paused, shard.pause_at) == (bool(model.end), model.paused, model.pause_at)
        assert (shard.diverged is not None) == (model.end == "diverged")
        assert (dict(shard.staleness), shard.recent_losses) == (model.stale, model.recent)
        assert [row[1:] for row in self.protocol.losses] + shard.losses == model.losses
        assert shard.slowest() == model.slowest()
        for worker in range(WORKERS):
            assert shard.may_pull(worker) == model.may_pull(worker)
        assert all(shard.may_push(clock) == model.may_push(clock) for clock in range(shard.rounds + 3))
        if shard.run is not RunState.DIVERGED:
            assert shard.at_border == (not model.held)
        self.protocol.losses.clear(), shard.losses.clear(), model.losses.clear()

    # Requests

    @rule(
        worker=st.integers(-1, WORKERS - 1),
        secret=st.sampled_from(["mine"] * 4 + [None] * 3 + [UNKNOWN, "another's"]),
        over=st.sampled_from(["new", "new", "own", "another's"]),
        again=st.booleans(),
    )
    def hello(self, worker, secret, over, again):
        another = (worker + 1) % WORKERS
        if secret in ("mine", "another's"):
            secret = self.model.members[worker if secret == "mine" else another].secret
        connection = {"new": ClientConnection(), "own": self.owns[worker], "another's": self.owns[another]}[over]
        self.ask("hello", connection, worker, **({"secret": secret} if secret else {}), again=again)
        if connection.worker >= 0 and over == "new":
            self.owns[connection.worker] = connection

    def come(self, worker):
        """Say hello as this worker's session, or as another one, if it is not connected."""
        if self.owns[worker] not in self.model.members[worker].links:
            self.hello(worker, "mine", "new", self.model.members[worker].state in ("lost", "silent"))

    @rule(
        worker=workers,
        which=st.sampled_from(["next"] * 5 + ["last", "last", "skipped", "skipped", "late", "gap", "old"]),
        lag=st.sampled_from([0, 0, 0, 1, 2, -1]),
        gradient=st.integers(0, 29).map(lambda drawn: GRADIENTS[max(drawn - 24, drawn % 4)]),
        loss=st.sampled_from([0.5, 2.0, 1e-7]),
        pulls=st.booleans(),
        twice=st.booleans(),
    )
    def push(self, worker, which, lag, gradient, loss, pulls, twice=False):
        self.come(worker)
        at, model = self.shard.clocks[worker], self.model
        known = {"last": [at - 1], "skipped": model.missed[worker], "late": model.dropped[worker], "gap": [at + 1]}
        known = sorted({"old": range(at), **known}.get(which, ())) or [at]
        fields = {"clock": max(known[len(known) // 2], 0), "version": max(self.shard.version - lag, 0)}
        self.last = "push_pull" if pulls else "push", worker, {"loss": loss, "gradient": gradient, **fields}
        self.repeat()
        if twice:
            self.repeat()

    @precondition(lambda self: self.last)
    @rule()
    def repeat(self):
        kind, worker, fields = self.last
        self.ask(kind, self.owns[worker], worker, **fields)

    @rule(**IN_TURN)
    def push_in_turn(self, order, count, times, lag, twice, slow, crashes):
        for worker in [*order[:count]] * times:
            self.push(worker, "next", lag, GRADIENTS[worker], 1.0 + worker, pulls=worker == 0, twice=twice)
        if slow:
            self.push(order[-1], "next", 0, GRADIENTS[0], 1.0, pulls=False)
        if crashes and not self.model.end:
            self.crash(snapshot=True, resends=True)

    @rule(**IN_TURN)
    def push_on(self, **drawn):
        """A third of what happens is pushes."""
        self.push_in_turn(**drawn)

    @rule(**IN_TURN)
    def push_on_and_on(self, **drawn):
        self.push_in_turn(**drawn)

    @rule(worker=workers)
    def pull(self, worker):
        self.come(worker)
        self.ask("pull", self.owns[worker], worker)

    @rule(worker=workers, kind=st.sampled_from(["push", "pull", "alive", "bye"]), unknown=st.booleans())
    def speak_as_another(self, worker, kind, unknown):
        connection = ClientConnection() if unknown else self.owns[(worker + 1) % WORKERS]
        fields = (
            {"clock": self.shard.clocks[worker], "version": 0, "loss": 1.0, "gradient": 1.0} if kind == "push" else {}
        )
        self.ask(kind, connection, worker, **fields)

    @rule(worker=workers)
    def alive(self, worker):
        self.ask("alive", self.owns[worker], worker)

    @rule(worker=workers, returns=st.booleans())
    def bye(self, worker, returns):
        self.ask("bye", self.owns[worker], worker)
        if returns:
            self.hello(worker, "mine", "new", True)

    @precondition(lambda self: self.waiting)
    @rule(which=st.integers(0, 3))
    def time_out(self, which):
        request = self.waiting.pop(which % len(self.waiting))
        assert request.carry_on(TimeoutError("")) or self.waiting.append(request) is None
        self.settle()

    # Time, and connections

    @rule(
        worker=workers,
        halves=st.sampled_from([0, 5, 6]),
        who=st.sampled_from([None, "mine", "stranger", "any"]),
        pushes=st.booleans(),
    )
    def break_connection(self, worker, halves, who, pushes):
        """A connection breaks, perhaps while a push waits; later its session says hello again, or another one does."""
        connection = self.owns[worker]
        if connection.worker < 0:
            return
        for _ in range(pushes + pushes):
            self.ask("push", connection, worker, clock=self.shard.clocks[worker], version=0, loss=1.0, gradient=1.0)
        lost_at, lost = self.protocol.membership.lost(connection), self.model.break_off(connection)
        assert (lost_at is None) == (lost is None)
        if lost is not None:
            self.timers.append((self.now + REJOIN_S, lost, lost_at))
        self.settle()
        self.wait(halves)
        if who:
            self.hello(-1 if who == "any" else worker, "mine" if who == "mine" else None, "new", who == "mine")

    @rule(halves=st.sampled_from([1, 2, 5, 6, 19, 20]), who=st.sampled_from([None, None, -1, 0, 1]))
    def wait(self, halves, who=None):
        for _ in range(halves):
            self.delay(0.5, returns=halves == 20)
        if who is not None:
            self.hello(who, None, "new", False)

    @rule(seconds=st.sampled_from([0.5, 3.0, 6.0, 20.0]), returns=st.booleans())
    def delay(self, seconds, returns):
        """The server's process stands still, and then does what is due; a silent worker may come just before that."""
        self.now += seconds
        self.model.now = self.now
        if self.now - self.model.looked >= SILENCE_S / 4:
            gone = self.protocol.membership.silent()
            assert [worker for worker, _ in gone] == self.model.look()
            for worker, event in gone:
                if returns:
                    self.hello(worker, "mine", "own", True)
                self.leave(worker, event)
                if self.model.members[worker].state != "present":
                    self.model.leave(worker)
        for due in [due for due in self.timers if due[0] <= self.now]:
            self.timers.remove(due)
            _, worker, lost_at = due
            self.leave(worker, "worker is gone", lost_at)
            if self.model.members[worker].lost_at == lost_at and self.model.members[worker].state != "present":
                self.model.leave(worker)
        self.settle()

    def leave(self, worker, event, lost_at=None):
        for need in (session := self.protocol.leave(worker, event, lost_at)):
            with pytest.raises(StopIteration):
                session.send(need.call())

    # The run

    @precondition(lambda self: self.model.paused)
    @rule()
    def go_on(self):
        self.protocol.go_on(), self.model.go_on()
        self.settle()

    @precondition(lambda self: self.shard.at_border)
    @rule()
    def pause(self):
        self.shard.pause(), self.model.pause()
        self.take_snapshot()  # the journal has no record of it
        self.settle()

    @rule(rarely=seldom, how=st.sampled_from(["over", "diverged", "too large", "too large"]), crashes=st.booleans())
    def end(self, rarely, how, crashes):
        if rarely and how == "too large":
            for worker in [*range(WORKERS)] * 5:
                self.push(worker, "next", 0, GRADIENTS[-1], 1.0, pulls=False)
        elif rarely and not self.model.end:
            self.protocol.go_on(end=True) if how == "over" else self.protocol.diverge("Nothing is finite.")
            self.model.finish(how)
            self.crash() if crashes else self.settle()

    # Saved and restored

    def take_snapshot(self):
        self.kept, self.records = copy.deepcopy(recovery.snapshot(self.protocol)), []
        self.kept_w, self.kept_duplicates = self.shard.params["w"].copy(), self.shard.duplicates

    def stop(self):
        while self.waiting:
            self.waiting.pop().close()
        self.timers, self.owns = [], [ClientConnection() for _ in range(WORKERS)]

    @precondition(lambda self: not self.model.end)  # what comes later is in no journal
    @rule(crashes=st.booleans(), snapshot=often, resends=often)
    def crash(self, crashes=True, snapshot=False, resends=False):
        if snapshot and self.shard.at_border:
            self.take_snapshot()
        if not crashes:
            return
        self.stop()
        self.start(self.kept_w)
        restore = recovery.restore if "members" in self.kept else ServerProtocol.restore
        restore(self.protocol, copy.deepcopy(self.kept))
        for frames in self.records:
            recovery.replay(self.protocol, from_frames(frames))
        self.protocol.losses.clear(), self.shard.losses.clear()
        lost_at = self.protocol.membership.restarted()
        self.model.crash(self.kept_duplicates)
        self.timers = [(lost_at + REJOIN_S, worker, lost_at) for worker in range(WORKERS)]
        self.settle()
        if self.last and resends:
            self.come(self.last[1])
            self.repeat()

    @rule(rarely=seldom, by=st.sampled_from([*RULES]))
    def save_and_resume(self, rarely, by):
        if rarely or self.model.end:
            consistency, quorum, staleness = RULES[by]
            self.config = dataclasses.replace(self.config, consistency=consistency)
            self.stop()
            state, w = copy.deepcopy(self.protocol.state()), self.shard.params["w"].copy()
            self.start(w)
            self.protocol.restore(state)
            self.model.resume(quorum, staleness)
            self.kept, self.records, self.kept_w, self.kept_duplicates = state, [], w, 0
            self.settle()

    def teardown(self):
        while getattr(self, "waiting", []):
            self.waiting.pop().close()


def run(examples, steps, **options):
    chosen = settings(max_examples=examples, stateful_step_count=steps, deadline=None, derandomize=True, **options)
    run_state_machine_as_test(Server, settings=chosen)


def test_whatever_happens_the_server_decides_as_the_reference():
    run(100, 50)


@pytest.mark.soak
def test_whatever_happens_in_longer_runs():
    run(120, 60)


@pytest.mark.campaign
@pytest.mark.timeout(1800)
def test_whatever_happens_in_more_and_longer_runs():
    run(400, 60)
