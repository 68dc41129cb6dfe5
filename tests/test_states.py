"""The tables of states: each event leads where its table says, and what follows is what the next state means."""

import contextlib
import types
from functools import partial

import numpy as np
import pytest
import states
import test_interrupted
import test_patience
import test_resume
import test_served
import test_server
import test_sessions
import test_shard
import test_train

import minips as ps
from minips.core.codec import Encoder, unpack
from minips.core.membership import ClientConnection
from minips.core.message import Message
from minips.core.partition import partition
from minips.core.protocol import ServerProtocol
from minips.core.sessions import carry_out
from minips.core.shard import Shard
from minips.core.states import MemberState, Resumption, RunState, Supervision
from minips.engines.local import RunSupervisor
from minips.results import saved

START = {"w": np.zeros(2)}
ONES = {"w": np.ones(2)}
SILENCE_S = 30.0


def steps(table):
    """Each state with each event of its table."""
    events = dict.fromkeys(event for state in table for event in state.row)
    return pytest.mark.parametrize(
        ("state", "event"), [pytest.param(s, e, id=f"{s.word}-{e}") for s in table for e in events]
    )


def follows(state, event):
    """The next state, or None if the event is refused in a sentence."""
    if event in state.row:
        return state.after(event)
    with pytest.raises(AssertionError, match=rf"^{type(state).__name__}\.{state.name} allows .+; got '{event}'\.$"):
        state.after(event)
    return None


def test_the_page_draws_the_tables():
    page = states.PAGE.read_text(encoding="utf-8")
    assert [page.count(states.picture(table)) for table in states.TABLES] == [1, 1, 1, 1]
    assert page == states.drawn(page)


@pytest.mark.parametrize("table", states.TABLES, ids=lambda table: table.__name__)
def test_each_state_can_be_reached(table):
    first, *others = table
    reached = [first]
    for state in reached:
        reached += [next for next in map(state.after, state.row) if next not in reached]
    assert {*reached} == {first, *others}


class Server:
    """A server's sessions in this thread, with a clock that a test sets; worker 0 speaks over ``connection``."""

    def __init__(self):
        self.now, config = 0.0, ps.Config(workers=2, consistency="asp", optimizer=ps.SGD(lr=1.0))
        self.shard = Shard.of(config, START, updates=9, now=lambda: self.now)
        layout = partition(START, 1)[0]
        self.protocol = ServerProtocol(self.shard, config, 0, layout, ps.Trace(), silence_s=SILENCE_S, rejoin_s=2.0)
        self.connection = ClientConnection()

    @property
    def member(self):
        return self.protocol.membership.members[0]

    @property
    def record(self):
        return self.protocol.records[0]

    def ask(self, kind, tensors=None, connection=None, **header):
        message = Message({"kind": kind, "worker": 0, **header}, tensors or {})
        frames = Encoder(ps.Codec(), np.random.default_rng(0), ps.Trace()).encode(message)
        answer = carry_out(self.protocol.answer(frames, connection or self.connection, self.now), {})
        packet, stamp, *_ = unpack(answer, ps.Codec(), ps.Trace())
        return {**packet.header, **stamp}

    def hello(self):
        self.ask("hello", **({"secret": self.member.secret} if self.member.secret else {}))

    def push(self):
        self.ask("push", ONES, clock=self.shard.clocks[0], version=0)

    def silence(self):
        for _ in range(5):
            self.now += SILENCE_S / 4
            for worker, event in self.protocol.membership.silent():
                carry_out(self.protocol.leave(worker, event), {})

    def lose(self):
        self.protocol.membership.lost(self.connection)

    def bye(self):
        self.ask("bye")

    def taken_by_another(self):
        """True if another client may take the worker's number."""
        with contextlib.suppress(ValueError):
            self.ask("hello", connection=ClientConnection())
            return True
        return False


# Members

MEMBER_PATHS = {
    MemberState.NEW: [],
    MemberState.PRESENT: ["hello"],
    MemberState.SILENT: ["hello", "silence"],
    MemberState.LOST: ["hello", "break"],
    MemberState.PARTED: ["hello", "bye"],
}
MEMBERS = {
    "hello": Server.hello,
    "push": Server.push,
    "silence": Server.silence,
    "break": Server.lose,
    "bye": Server.bye,
}
MEANS = {
    MemberState.NEW: (False, True, True),
    MemberState.PRESENT: (True, True, False),
    MemberState.SILENT: (True, False, True),
    MemberState.LOST: (False, True, False),
    MemberState.PARTED: (False, False, True),
}
"""Whether it is connected, the others wait for it, and another client may take its number."""


@steps(MemberState)
def test_a_member(state, event):
    server = Server()
    for before in MEMBER_PATHS[state]:
        MEMBERS[before](server)
    assert server.member.state is state
    after = follows(state, event)
    if after is None and event in ("push", "bye"):
        with pytest.raises(ValueError, match="say hello first, with the session's secret"):
            MEMBERS[event](server)
    else:
        MEMBERS[event](server)
    assert server.member.state is (after or state)
    connected, counts, free = MEANS[after or state]
    if after is MemberState.LOST:
        counts = state is not MemberState.SILENT
    assert (bool(server.member.connections), 0 in server.shard.live) == (connected, counts)
    if (state, event) == (MemberState.LOST, "silence"):
        free = True  # rejoin_s has passed
    assert server.taken_by_another() == free


def test_a_session_that_comes_while_a_goodbye_is_read_stays(monkeypatch):
    server, other = Server(), ClientConnection()
    server.hello()
    server.ask("state")  # it will leave its part
    read = ServerProtocol.read_part

    def meanwhile(protocol, packet):
        with pytest.raises(ValueError, match="say hello first"):
            server.push()
        server.ask("hello", connection=other)
        return read(protocol, packet)

    monkeypatch.setattr(ServerProtocol, "read_part", meanwhile)
    link = {"encoder": server.record.encoder.state(), "decoder": server.record.decoder.state(), "version": 0}
    server.ask("bye", saved.to_arrays({"format": 1, "link": link, "seen": None}), state=True)
    assert (server.member.state, server.member.connections) == (MemberState.PRESENT, {other})
    assert (server.record.kept, server.member.leaves) == (None, False)
    assert server.ask("alive", connection=other)["clock"] == 0


def test_a_push_that_waited_until_its_worker_had_left_does_not_bring_the_worker_back():
    server = Server()
    server.hello()
    server.shard.pause(0)
    message = Message({"kind": "push", "worker": 0, "clock": 0, "version": 0}, ONES)
    frames = Encoder(ps.Codec(), np.random.default_rng(0), ps.Trace()).encode(message)
    waiting = server.protocol.answer(frames, server.connection, 0.0)
    need = next(waiting)
    need = waiting.send(need.call())
    assert not need.ready()
    server.bye()
    server.shard.go_on()
    need = next(waiting)
    with pytest.raises(ValueError, match=r"^Worker 0 has left while this push of it waited\.$"):
        waiting.send(need.call())
    assert (server.shard.live, server.shard.applied) == ({1}, 0)


# Runs


class Breaks(ps.Mean):
    """A mean that fails if told to."""

    breaks = False

    def combine(self, contributions):
        if Breaks.breaks:
            raise ArithmeticError("broken")
        return super().combine(contributions)


def round_of(shard):
    for worker in (0, 1):
        test_shard.push(shard, worker)


def fail(shard):
    Breaks.breaks = True
    with pytest.raises(RuntimeError, match=r"was not applied: ArithmeticError: broken"):
        shard.apply()


RUNS = {
    "pause": lambda shard: shard.pause(shard.applied),
    "go on": Shard.go_on,
    "strand": lambda shard: shard.strand("Too few are left."),
    "update": round_of,
    "fail": fail,
    "diverge": lambda shard: shard.diverge("Nothing is finite."),
    "end": Shard.end,
}
RUN_PATHS = {
    RunState.RUNNING: [],
    RunState.PAUSED: ["pause"],
    RunState.STUCK: ["strand"],
    RunState.FAILED: ["fail"],
    RunState.DIVERGED: ["diverge"],
    RunState.OVER: ["end"],
}
RUN_MEANS = {
    RunState.RUNNING: (False, False, "held"),
    RunState.PAUSED: (True, False, ValueError),
    RunState.STUCK: (False, False, "held"),
    RunState.FAILED: (False, False, RuntimeError),
    RunState.DIVERGED: (False, True, "over"),
    RunState.OVER: (False, True, "over"),
}
"""Whether it is paused, whether it is done, and the outcome of a push, or its error."""


@steps(RunState)
def test_a_run(state, event, monkeypatch):
    monkeypatch.setattr(Breaks, "breaks", False)
    shard = test_shard.make(ps.BSP(), 2, aggregator=Breaks())
    if "fail" in (event, *RUN_PATHS[state]):  # an update that is due may fail, whatever happens before it is made
        for worker in (0, 1):
            shard.take(ps.Contribution(worker, 0, 0, test_shard.gradients(worker, 0)), checked=True)
    for before in RUN_PATHS[state]:
        RUNS[before](shard)
    assert shard.run is state
    if after := follows(state, event):
        RUNS[event](shard)
    assert shard.run is (after or state)
    paused, done, outcome = RUN_MEANS[after or state]
    assert (shard.paused, shard.done) == (paused, done)
    assert (shard.may_push(shard.clocks[1]), shard.may_pull(1)) == (not paused, not paused)
    if shard.run is RunState.DIVERGED:
        assert shard.diverged == "Nothing is finite."
    assert bool(shard.stuck) == (shard.run in (RunState.STUCK, RunState.FAILED)) or done
    if isinstance(outcome, str):
        assert test_shard.push(shard, 1) == outcome
    else:
        with pytest.raises(outcome, match=r"^Worker 1 pushed at clock|was not applied|^Too few are left"):
            test_shard.push(shard, 1)


def test_a_stuck_run_continues_once_a_worker_is_back():
    shard = test_shard.make(ps.BSP(), 3, aggregator=ps.TrimmedMean(trim=1))
    test_shard.push(shard, 0), test_shard.push(shard, 1)
    shard.leave(2)
    assert shard.run is RunState.STUCK
    shard.join(2)
    assert test_shard.push(shard, 2) == "applied"
    assert (shard.run, shard.stuck, shard.version) == (RunState.RUNNING, "", 1)


def test_an_update_that_was_due_when_a_run_ended_does_not_reopen_it():
    shard = test_shard.make(ps.BSP(), 2, updates=8)
    for worker in (0, 1):
        shard.take(ps.Contribution(worker, 0, 0, test_shard.gradients(worker, 0)), checked=True)
    shard.diverge("Nothing is finite.")
    shard.apply()
    assert (shard.run, shard.done, shard.diverged) == (RunState.DIVERGED, True, "Nothing is finite.")
    assert test_shard.push(shard, 0) == "over"


# Resumptions

PART = {"format": 1, "link": None, "seen": None}
RESUMPTIONS = {
    "hello": Server.hello,
    "fetch": lambda server: server.ask("state"),
    "restore": lambda server: server.protocol.restore({**Server().protocol.state(), "left": [PART, None]}),
    "resume": Server.push,
    "restart": Server.push,
}
RESUMPTION_PATHS = {
    Resumption.FRESH: ["hello"],
    Resumption.RESUMING: ["restore", "hello"],
    Resumption.FETCHED: ["restore", "hello", "fetch"],
    Resumption.RESUMED: ["restore", "hello", "fetch", "resume"],
    Resumption.RESTARTED: ["restore", "hello", "restart"],
}


@steps(Resumption)
def test_a_resumption(state, event):
    server = Server()
    for before in RESUMPTION_PATHS[state]:
        RESUMPTIONS[before](server)
    assert server.record.resumption is state
    after = follows(state, event)
    if state is Resumption.RESUMING and event == "resume":
        server.record.kept = None  # the engine provides it
    if after:
        RESUMPTIONS[event](server)
    elif event == "restore":
        with pytest.raises(AssertionError):
            RESUMPTIONS[event](server)
    after = after or state
    assert server.record.resumption is after
    resumes = after in (Resumption.RESUMING, Resumption.FETCHED)
    assert server.record.kept == (PART if resumes else None)
    decoder = server.record.decoder
    server.hello()
    assert (server.record.decoder is decoder) == resumes, "a hello that is not the first resets the memories"


# Supervisors


class Family(RunSupervisor):
    """A supervisor of a server and two workers that exist in name only."""

    def __init__(self):
        self.asked = []
        stop = lambda: bool(self.asked.append(1))  # noqa: E731
        job = types.SimpleNamespace(config=ps.Config(workers=2), watch=None, stop=stop, checkpoint=None)
        super().__init__(lambda *names: [], job)
        self.children = [self.child(who) for who in ("server 0", "worker 0", "worker 1")]
        self.servers, self.workers = self.children[:1], self.children[1:]
        self.holders = self.reporters = self.servers

    @staticmethod
    def child(who):
        received = dict.fromkeys(("ready", "connected", "pausing", "finished"), 0)
        return types.SimpleNamespace(
            who=who, received=received, done=True, gone=False, send=lambda *_: None, end=lambda _: "gone"
        )

    def wait(self, until, limit=0.0):
        assert until()
        return True

    def _results(self):
        return "the run"


SUPERVISIONS = {
    "brief": lambda family: family._on("brief"),
    "go": Family._connect,
    "end": Family._end_at_a_clock,
    "fail": lambda family: family.failed(family.workers[0], "worn out", ""),
    "lose a server": lambda family: family.failed(family.servers[0], "worn out", ""),
    "begin again": lambda family: family._end_ranks("worker 1 has died"),
    "report": Family._ended,
}


@steps(Supervision)
def test_a_supervisor(state, event):
    family = Family()
    family.state = state
    after = follows(state, event)
    if after and event in ("fail", "lose a server"):
        with pytest.raises(RuntimeError, match=r" 0 failed: worn out$"):
            SUPERVISIONS[event](family)
    elif after and not (event == "end" and state is not Supervision.RUNNING):
        SUPERVISIONS[event](family)
    elif after:
        family._on(event)
    assert family.state is (after or state)
    if family.state is Supervision.ENDING:  # what fails or leaves is an event, and nobody is asked whether to stop
        family.failed(family.servers[0], "worn out", "")
        family.lost(family.workers[0])
        family._check_end()
        assert (family.state, family.asked, len(family.events)) == (Supervision.ENDING, [], 1)
    if family.state in (Supervision.CONNECTING, Supervision.RUNNING):
        family._check_end()
        with pytest.raises(RuntimeError, match=r"^server 0 ended before its work was done: gone\.$"):
            family.lost(family.servers[0])
        assert (family.state, family.asked) == (Supervision.OVER, [1])


# Mutants

SHARD = {"consistency": ps.BSP(), "params": test_shard.START}
RESUMED = partial(
    test_resume.test_resumed_runs_are_the_same_whatever_the_links_remember,
    fields={"pull": test_served.DELTA, "push": test_served.DELTA},
    engine="simulated",
)
MUTANTS = {
    "a pause does not begin": (
        *(RunState.RUNNING, "pause", "running"),
        test_shard.test_pauses_are_counted_in_rounds_also_where_a_worker_is_lost_between_two_servers,
    ),
    "a pause does not end": (
        *(RunState.PAUSED, "go on", "paused"),
        test_shard.test_pauses_are_counted_in_rounds_also_where_a_worker_is_lost_between_two_servers,
    ),
    "a stage fails, and the run continues": (
        *(RunState.RUNNING, "fail", "running"),
        test_shard.test_a_worker_that_leaves_a_failed_run_brings_no_update_about,
    ),
    "a run that diverges continues": (
        *(RunState.RUNNING, "diverge", "running"),
        partial(test_shard.test_an_update_past_all_numbers_is_not_applied_and_ends_the_run, **SHARD),
    ),
    "the last update does not end a run": (
        *(RunState.RUNNING, "end", "running"),
        partial(test_shard.test_after_the_end_all_may_pull_and_pushes_are_over, consistency=ps.BSP()),
    ),
    "a worker that comes is silent": (
        *(MemberState.NEW, "hello", "silent"),
        test_patience.test_silence_counts_the_time_that_the_server_could_run,
    ),
    "a worker that says goodbye still counts": (
        *(MemberState.PRESENT, "bye", "present"),
        test_sessions.test_a_round_is_completed_without_a_worker_that_has_left_as_in_a_run,
    ),
    "a server that continues a run forgets it": (
        *(Resumption.FRESH, "restore", "fresh"),
        RESUMED,
    ),
    "a worker that fails takes the run with it": (
        *(Supervision.RUNNING, "fail", "over"),
        partial(test_interrupted.test_the_end_of_a_worker_carries_the_run, engine="threads", exchange=ps.PS()),
    ),
    "a run that is stopped before it begins runs": (
        *(Supervision.CONNECTING, "end", "running"),
        partial(test_train.test_a_run_that_is_stopped_before_it_begins_has_its_first_parameters, engine="threads"),
    ),
    "a worker that breaks off has said goodbye": (
        *(MemberState.PRESENT, "break", "parted"),
        test_server.test_a_worker_that_was_lost_is_given_away_last,
    ),
    "a worker does not come back from a goodbye": (
        *(MemberState.PARTED, "hello", "parted"),
        test_server.test_a_worker_that_returned_after_a_goodbye_and_vanishes_no_longer_counts,
    ),
    "the first hello resets what was restored": (
        *(Resumption.RESUMING, "hello", "fresh"),
        RESUMED,
    ),
    "a worker that restarts seems to resume": (
        *(Resumption.RESUMING, "restart", "resumed"),
        test_served.test_of_an_older_client_the_memory_begins_anew_and_the_run_says_so,
    ),
}
"""A state, an event, where it leads instead, and the test that has to notice it."""


SOAK = [*MUTANTS][-4:]
"""The slower ones."""


@pytest.mark.parametrize(
    "mutant", [pytest.param(one, marks=pytest.mark.soak if one in SOAK else ()) for one in MUTANTS]
)
def test_a_mutant_of_a_table_is_noticed(mutant, monkeypatch, tmp_path):
    state, event, word, test = MUTANTS[mutant]
    fixtures = {"monkeypatch": monkeypatch, "tmp_path": tmp_path, "clock": test_patience.Clock()}
    code = getattr(test, "func", test).__code__
    taken = {name: fixtures[name] for name in code.co_varnames[: code.co_argcount] if name in fixtures}
    test(**taken)
    assert state.row[event] != word
    monkeypatch.setitem(state.row, event, word)
    with pytest.raises((Exception, pytest.fail.Exception)):
        test(**taken)
