"""Each message of a run is there once, with its bytes, and a wait is for the worker that the shard waited for."""

import json
import math
from collections import Counter, defaultdict
from dataclasses import dataclass, replace

import misfits
import numpy as np
import pytest
from test_reconnecting import CONFIG, ONES, SOON, START, WAIT_S, cut, cut_after_an_update, until

import minips as ps
from minips.core.exchange import AllReduce
from minips.core.shard import Shard
from minips.machines.fit import Line
from minips.results.clocks import clock_offsets
from minips.results.messages import NOTHING, Message, Wait, join_messages, messages_of
from minips.results.trace import UPDATE, Trace
from minips.results.waits import WAITED, waits_of

PROBLEM = ps.SoftmaxRegression(*ps.datasets.synthetic(rows=120, classes=3))
SLOW = ps.Delays(0.001, slow={1: 8.0})
STATEFUL = ps.Codec(ps.Uniform(), ps.Delta())
FIELDS = {
    "bsp": {},
    "two servers": {"servers": 2, "delays": SLOW},
    "ssp": {"consistency": ps.SSP(1), "delays": SLOW},
    "asp": {"consistency": "asp"},
    "overlap": {"overlap": True, "servers": 2},
    "backup": {"consistency": ps.BSP(backup=1)},
    "an answer of its own for each worker": {"push": STATEFUL, "pull": STATEFUL},
    "local steps": {"local": ps.LocalSteps(2), "optimizer": ps.SGD(lr=1.0)},
    "ring": {"exchange": "ring", "delays": SLOW},
    "tree": {"exchange": "tree"},
    "halving and doubling": {"exchange": "halvingdoubling", "overlap": True},
    "two shots": {"exchange": "twoshot", "push": ps.Codec(ps.TopK(0.5), ps.ErrorFeedback())},
}
CLICKS = ps.ClickModel(*ps.datasets.clicks(rows=200, seed=0))
ENGINES = ["threads", "simulated", "a simulated link"]
SHORT = ("two servers", "ring")
"""The cases that the default run also tries on a simulated link."""


def cases(*names):
    """Parameters for each of these cases on each engine."""
    return pytest.mark.parametrize(
        ("name", "engine"),
        [
            pytest.param(name, engine, marks=pytest.mark.soak if "link" in engine and name not in SHORT else ())
            for name in names
            for engine in ENGINES
        ],
    )


WORKERS, STEPS = 4, 6


def run_of(engine, **fields):
    link = ps.Link(1e7, 1e-4) if engine == "a simulated link" else None
    config = ps.Config(**{"workers": WORKERS, "steps": STEPS, "link": link, "transport": "inproc", **fields})
    return ps.train(PROBLEM, config, engine=engine.split()[-1].replace("link", "simulated"))


def sums(run):
    """The bytes that workers have sent, and those that they have received."""
    sent = sum(one.nbytes for one in run.messages if one.sender.startswith("worker"))
    return sent, sum(one.nbytes for one in run.messages if one.receiver.startswith("worker"))


def check_whole(run):
    """Each message is there once, has both ends, and the sums are the run's own."""
    messages = run.messages
    assert sums(run) == (run.bytes_sent, run.bytes_received)
    assert all(None not in (one.start, one.end) and one.start <= one.end for one in messages)
    assert [one.start for one in messages] == sorted(one.start for one in messages)
    kinds = Counter(one.kind for one in messages)
    config = run.config
    if isinstance(config.exchange, AllReduce):
        schedules = [config.exchange.schedule(rank, config.workers) for rank in range(config.workers)]
        hops = Counter((f"worker {rank}", f"worker {hop.to}") for rank, hops in enumerate(schedules) for hop in hops)
        hops = {ends: count for ends, count in hops.items() if ends[1] != "worker None"}
        for step in range(config.clocks):
            assert Counter(one[1:3] for one in messages if (one.kind, one.clock) == ("hop", step)) == hops
        assert kinds == {"hop": sum(hops.values()) * config.clocks, "greeting": len(hops)}
        return
    pairs = config.workers * config.servers
    pushes = Counter(one[1:4] for one in messages if one.kind == "push_pull")
    assert set(pushes.values()) == {1}
    assert len(pushes) >= run.updates * config.servers  # and those that came too late
    assert len(pushes) == config.clocks * pairs or config.consistency != ps.BSP()
    assert kinds["hello"] == kinds["bye"] == pairs <= kinds["pull"]  # a straggler pulls again
    assert kinds["reply"] == sum(kinds.values()) - kinds["reply"]


@cases(*FIELDS)
def test_each_message_is_there_once_with_its_bytes(engine, name):
    check_whole(run_of(engine, **FIELDS[name]))


@pytest.mark.parametrize("fields", [{"servers": 2}, {"exchange": "ring"}], ids=["servers", "ring"])
def test_processes_note_their_halves_on_one_clock(fields):
    run = ps.train(PROBLEM, ps.Config(workers=2, steps=STEPS, **fields), engine="processes")
    check_whole(run)
    assert all(-60 < one.start <= one.end < run.seconds + 60 for one in run.messages)


@pytest.mark.parametrize("engine", ["threads", "simulated"])
def test_a_run_with_evaluations_and_a_run_with_tables_have_all_messages(engine):
    config = ps.Config(workers=2, steps=8, transport="inproc", servers=2)
    check_whole(ps.train(PROBLEM, config, engine=engine, every=2))
    check_whole(ps.train(CLICKS, config, engine=engine))


def test_pushes_that_do_not_wait_for_their_answers_are_told_apart():
    def deeds(server, clients):
        for client in clients:
            answers = [client.push(ONES) for _ in range(5)]
            answers += [client.pull() for _ in range(3)]
            assert all(answer.result(WAIT_S) for answer in answers)

    config = replace(CONFIG, workers=2)
    messages = messages_of(together(config, deeds))
    assert all(None not in (one.start, one.end) and one.start <= one.end for one in messages)
    pushes = [(one.sender, one.clock) for one in messages if one.kind == "push"]
    assert sorted(pushes) == [(f"worker {worker}", clock) for worker in range(2) for clock in range(5)]
    assert Counter(one.kind for one in messages) == {"hello": 2, "push": 10, "pull": 6, "bye": 2, "reply": 20}


def test_a_message_leaves_when_it_is_sent_and_ends_when_it_is_decoded():
    run = run_of("threads", servers=2, consistency="asp", workers=1)
    spans = [span for span in run.trace if span.who == "worker 0"]
    sent = {span.start for span in spans if span.name == "transfer"}
    decoded = {span.start for span in spans if span.name == "decompress"}
    for one in run.messages:
        if one.kind in ("pull", "push_pull"):
            assert one.start in sent
        elif one.kind == "reply":
            assert one.end in decoded


def test_on_a_link_a_message_takes_its_time():
    run = run_of("a simulated link")
    link = run.config.link
    for one in run.messages:
        if one.kind == "push_pull":
            assert one.end - one.start >= link.latency_s / 2 + one.nbytes * 8 / link.bandwidth_bps
    assert {one.start for one in run.messages if one.kind == "hello"} == {0.0}  # before the clock starts


# Waits


class Watch:
    """Notes, in each shard, for which pull a worker waits, and whose call lets it go."""

    def __init__(self, monkeypatch):
        self.waits = defaultdict(list)
        """For each worker, whom the shard waited for, from wait to wait; None: itself."""
        asks = Shard.may_pull

        def may_pull(shard, worker):
            ok = asks(shard, worker)
            if not ok:
                vars(shard).setdefault("watched", {}).setdefault(worker, shard.now())
            return ok

        def follow(name, actor_of):
            call = getattr(Shard, name)

            def watched(shard, *args, **kwargs):
                actor, outer = actor_of(shard, *args), "acting" not in vars(shard)
                shard.acting = True
                result = call(shard, *args, **kwargs)
                if outer:  # not for the end, say, in which an update results
                    del shard.acting
                    waiting = vars(shard).get("watched", {})
                    for worker in [worker for worker in waiting if asks(shard, worker)]:
                        if shard.now() > waiting.pop(worker):
                            self.waits[worker].append(None if actor == worker else actor)
                return result

            monkeypatch.setattr(Shard, name, watched)

        monkeypatch.setattr(Shard, "may_pull", may_pull)
        follow("apply", lambda shard: shard._due[1].worker if shard._due[1] else None)
        for name in ("go_on", "end", "diverge"):
            follow(name, lambda *_: None)
        follow("depart", lambda shard, worker: worker)

    def check(self, run):
        """The first partner of each wait is the worker for which the shard waited."""
        found = defaultdict(list)
        for wait in run.waits:
            found[int(wait.who.split()[1])].append(wait.partners[0])
        wanted = {
            worker: ["server 0" if other is None else f"worker {other}" for other in others]
            for worker, others in self.waits.items()
        }
        order = list if run.config.servers == 1 else Counter  # several servers' waits run side by side
        for worker in {*found, *wanted}:
            assert order(found[worker]) == order(wanted[worker])


@cases("bsp", "two servers", "ssp", "asp", "overlap", "backup", "an answer of its own for each worker")
def test_a_wait_is_for_the_worker_that_the_shard_waited_for(engine, name, monkeypatch):
    watch = Watch(monkeypatch)
    fields = {"delays": ps.Delays(0.002, exponential=True), **FIELDS[name], "steps": 20}
    run = run_of(engine, **fields)
    watch.check(run)
    assert watch.waits or name == "asp"


@dataclass(frozen=True)
class Sees(ps.Consistency):
    """BSP without rounds, by the view with the time."""

    name = "sees"

    def quorum(self, workers):
        return None

    def may_pull(self, view):
        return min(view.clocks) >= view.clocks[view.worker]


def test_a_wait_under_a_model_that_sees_the_time_is_for_the_last_push(monkeypatch):
    watch = Watch(monkeypatch)
    run = run_of("simulated", consistency=Sees(), delays=ps.Delays(0.002, exponential=True), steps=20)
    watch.check(run)
    assert watch.waits


def test_a_push_that_waits_for_the_round_before_is_for_whose_push_completes_it():
    config = replace(CONFIG, workers=3, consistency=ps.BSP())

    def deeds(server, clients):
        answers = [clients[0].push(ONES), clients[1].push(ONES)]
        until(lambda: server.shard.clocks == [1, 1, 0])
        answers.append(clients[0].push(ONES))  # of the next round
        until(lambda: server._waiting)
        answers.append(clients[2].push(ONES))
        assert all(answer.result(WAIT_S) for answer in answers)

    waits = waits_of(together(config, deeds), config.consistency, 3)
    assert [(wait.who, wait.partners) for wait in waits] == [("worker 0", ("worker 2",))]


def test_waits_that_begin_at_once_at_two_servers_are_told_apart():
    worker = Trace("worker 0", [("wait", "worker 0", 1.0, 4.0, 0), ("wait", "worker 0", 1.0, 6.0, 0)])
    traces = [worker]
    for number, end in enumerate((5.0, 7.0)):
        server = Trace(f"server {number}")
        server.laps(WAITED, (1.0, end, end, end), None, 0, None, 0)
        server.laps(UPDATE, (end, end, end), None, number + 1, 0, 0)
        server.laps(("decompress",), (1.0, 1.0), "push_pull", 0, 0, 9, (), 0, end, "reply", 0, 1, 9)
        traces.append(server)
    waits = waits_of(Trace.joined(traces), ps.BSP(), 3)
    assert [(wait.seconds, wait.partners) for wait in waits] == [(4.0, ("worker 1",)), (6.0, ("worker 2",))]


def test_a_simulated_wait_for_a_busy_server_is_for_the_server():
    calibration = ps.cost.Calibration(
        worker={}, server={"serialize": Line(1.0)}, worker_rest=Line(), server_rest=Line(), gradient=Line(1.0)
    )
    config = ps.Config(workers=2, steps=3)
    run = ps.train(PROBLEM, config, engine=ps.Simulated(calibration=calibration))
    assert {wait.partners for wait in run.waits} == {("server 0",)}


@pytest.mark.parametrize("engine", ["threads", "simulated"])
@pytest.mark.parametrize("exchange", ["ring", "twoshot"])
def test_in_an_all_reduce_a_wait_is_for_the_neighbour_and_for_those_that_it_waited_for(engine, exchange):
    run = run_of(engine, exchange=exchange, delays=ps.Delays(0.002, slow={1: 10.0}))
    hops = {(one.sender, one.receiver, one.clock) for one in run.messages if one.kind == "hop"}
    slow = Counter()
    for wait in run.waits:
        assert (wait.partners[0], wait.who, wait.step) in hops
        assert len({wait.who, *wait.partners}) == len(wait.partners) + 1
        if wait.seconds > 0.01:  # a slow worker's step
            slow[wait.partners[-1]] += 1
    assert slow.most_common(1)[0][0] == "worker 1"
    assert slow["worker 1"] >= 3 * STEPS // 2
    spans = [span for span in run.trace if span.name == "wait" and span.seconds > 0]
    assert sorted(wait[:4] for wait in run.waits) == sorted(span[1:] for span in spans)


def together(config, deeds):
    """Connect all workers by hand, let ``deeds(server, clients)`` happen, and return the trace of all of them."""
    with ps.Server(START, config).serve(token="t") as server:
        clients = [ps.connect(server.address, config, worker=worker, token="t") for worker in range(config.workers)]
        try:
            deeds(server, clients)
        finally:
            for client in clients:
                client.close()
    return Trace.joined([server.trace, *(client.trace for client in clients)])


@pytest.mark.parametrize("consistency", [ps.BSP(), ps.SSP(0), ps.SSP(1)], ids=str)
def test_a_wait_that_ends_because_a_worker_left_is_for_that_worker(consistency):
    config = replace(CONFIG, workers=3, consistency=consistency)

    def deeds(server, clients):
        staleness = getattr(consistency, "staleness", 0)
        for _ in range(staleness):
            for client in clients[:2]:
                client.push_pull(ONES).result(WAIT_S)
        answers = []
        for worker in range(2):
            answers.append(clients[worker].push_pull(ONES))
            until(lambda worker=worker: server.shard.clocks[worker] == staleness + 1)
        until(lambda: len(server._waiting) == 2)
        clients[2].close()
        for answer in answers:
            answer.result(WAIT_S)

    trace = together(config, deeds)
    partners = {wait.who: wait.partners for wait in waits_of(trace, consistency, 3)}
    assert {who: names[0] for who, names in partners.items()} == {"worker 0": "worker 2", "worker 1": "worker 2"}
    if consistency == ps.BSP():
        assert partners["worker 0"] == ("worker 2", "worker 1")


def test_a_pause_is_a_wait_for_the_server():
    config = replace(CONFIG, workers=1, consistency=ps.BSP())

    def deeds(server, clients):
        server.pause(1)
        answer = clients[0].push_pull(ONES)
        until(lambda: server._waiting)
        server.go_on()
        answer.result(WAIT_S)

    assert [wait.partners for wait in waits_of(together(config, deeds), ps.BSP(), 1)] == [("server 0",)]


# Halves


def test_a_worker_that_died_leaves_the_other_halves():
    problem = misfits.Kills(workers=3, culprits=(2,), at=4)
    run = ps.train(problem, ps.Config(workers=3, steps=8), engine="processes")
    whole = [one for one in run.messages if "worker 2" not in one[1:3]]
    assert all(None not in (one.start, one.end) for one in whole)
    dead = [one for one in run.messages if "worker 2" in one[1:3]]
    assert all((one.start is None) == (one.sender == "worker 2") for one in dead)
    assert all((one.end is None) == (one.receiver == "worker 2") for one in dead)
    assert Counter(one.kind for one in dead) == {"hello": 1, "pull": 1, "push_pull": 3, "reply": 5}
    sizes = {one[:5] for one in whole}
    for one in dead:  # with the bytes of the others' messages
        others = {(*one[:1], *(name.replace("2", "1") for name in one[1:3]), *one[3:5])}
        assert one.kind in ("hello", "reply") or others <= sizes
    assert sum(one.nbytes for one in whole if one.receiver == "server 0") == run.bytes_sent
    ended = [wait for wait in run.waits if wait.partners[0] == "worker 2" and wait.seconds > 0.2]
    assert {wait.who for wait in ended} == {"worker 0", "worker 1"}  # until the server stopped counting it


def test_a_server_started_by_hand_has_its_halves():
    with ps.Server(START, CONFIG, updates=3).serve(token="t") as server:
        with ps.connect(server.address, CONFIG, token="t") as client:
            client.pull().result(WAIT_S)
            for _ in range(3):
                client.push_pull(ONES).result(WAIT_S)
        run = server.wait(WAIT_S)
    assert sums(run) == (run.bytes_sent, run.bytes_received)
    assert Counter((one.kind, one.start is None, one.end is None) for one in run.messages) == {
        ("hello", True, False): 1,
        ("pull", True, False): 1,
        ("push_pull", True, False): 3,
        ("bye", True, False): 1,
        ("reply", False, True): 6,
    }
    assert run.waits == []


def test_messages_that_are_sent_again_over_another_connection_are_there_once():
    config = replace(CONFIG, consistency=ps.BSP())
    with (
        ps.Server(START, config).serve(token="t") as server,
        ps.connect(server.address, config, token="t", pauses_s=SOON) as client,
    ):
        for step in range(8):
            if step in (2, 5):
                cut(client)
            client.push_pull(ONES).result(WAIT_S)
    trace = server.trace + client.trace
    pushes = [one for one in messages_of(trace) if one.kind == "push_pull"]
    assert [one.clock for one in pushes] == [*range(8)]
    assert all(None not in (one.start, one.end) for one in pushes)
    hellos = [one for one in messages_of(trace) if one.kind == "hello"]
    assert len(hellos) == 3
    assert sum(one.nbytes for one in messages_of(trace) if one.sender == "worker 0") == client.bytes_sent


def test_an_answer_that_was_lost_has_no_end(monkeypatch):
    with (
        ps.Server(START, CONFIG).serve(token="t") as server,
        ps.connect(server.address, CONFIG, token="t") as client,
    ):
        cut_after_an_update(monkeypatch, server, client)
        for _ in range(3):
            client.push_pull(ONES).result(WAIT_S)
    messages = messages_of(server.trace + client.trace)
    assert [one.clock for one in messages if one.kind == "push_pull"] == [0, 1, 2]
    replies = [(one.clock, one.end is None) for one in messages if one.kind == "reply" and one.clock]
    assert (1, True) in replies
    assert {(clock, False) for clock in (1, 2, 3)} <= {*replies}


def row(who, names, *moments, clock=None):
    trace = Trace(who)
    trace.laps(names, moments, "pull", 0, clock, 9)
    return trace


@pytest.mark.parametrize(
    ("sent", "came", "until", "found"),
    [
        ([1, 3], [2, 4], math.inf, [(1, 2), (3, 4)]),
        ([1, 2], [3, 4], math.inf, [(1, 3), (2, 4)]),
        ([1, 3], [4], math.inf, [(1, None), (3, 4)]),
        ([1, 3], [2], math.inf, [(1, 2), (3, None)]),
        ([1, 5], [2, 3, 6], math.inf, [(1, 2), (5, 6)]),  # the first one came twice
        ([1, 3], [2, 4, 6], 5, [(1, 2), (3, 4), (None, 6)]),  # the sender had no room for the third
        ([], [2, 4], math.inf, [(None, 2), (None, 4)]),
        ([1, 3], [], math.inf, [(1, None), (3, None)]),
    ],
)
def test_halves_that_are_alike_are_joined_in_order(sent, came, until, found):
    traces = [row("worker 0", ("serialize",), at - 0.5, at) for at in sent]
    traces += [row("server 0", ("decompress",), at, at + 0.5) for at in came]
    messages = join_messages(Trace.joined(traces).rows(), until)
    assert sorted((one[5:] for one in messages), key=lambda ends: ends[0] or ends[1]) == found


@pytest.mark.parametrize("engine", ["threads", "a simulated link"])
def test_messages_before_the_first_row_without_room_are_whole(engine, monkeypatch):
    most = 150
    monkeypatch.setattr("minips.engines.simulated.simulation.MAX_ROWS", most)
    make = Trace.__init__
    monkeypatch.setattr(
        Trace,
        "__init__",
        lambda self, who="", spans=(), limit=most, *rest, **more: make(self, who, spans, limit, *rest, **more),
    )
    run = run_of(engine, consistency=ps.BSP(), steps=40)
    until = run.trace.until
    assert 0 < until < run.seconds
    assert sum(1 for _ in run.trace.rows()) <= 2 * most * (WORKERS + 1)
    early = [one for one in run.messages if min(at for at in one[5:] if at is not None) < until]
    assert early
    assert all(one.start is not None for one in early)
    pushes = Counter(one[1:4] for one in run.messages if one.kind == "push_pull")
    assert set(pushes.values()) == {1}


# Clocks


@pytest.mark.parametrize("fields", [{"servers": 2}, {"exchange": "ring"}], ids=["servers", "ring"])
@pytest.mark.parametrize("ahead_s", [0.7, -0.7, 1e-9])
def test_the_offset_of_another_machines_clock_is_found_and_its_error_is_said(fields, ahead_s, tmp_path):
    run = run_of("threads", **fields)
    true = run.messages
    machine_of = {"server 0": "a", "worker 0": "a", "worker 1": "b", "server 1": "b", "worker 2": "a", "worker 3": "c"}
    run.trace = run.trace.since(0.0, {who: -ahead_s for who, machine in machine_of.items() if machine == "b"})
    if abs(ahead_s) > 0.1:
        assert min(one.end - one.start for one in run.messages) < -0.5
    run = run.align(machine_of)
    assert 0 < run.clock_error_s < 0.1
    for one in run.messages:
        assert one.end - one.start >= -2 * run.clock_error_s
        assert {machine_of[one.sender], machine_of[one.receiver]} != {"a", "b"} or one.end >= one.start
    times = {one[:5]: one[5:] for one in true}
    for one in run.messages if "servers" in fields else ():  # those with a clock are not alike
        for at, then in zip(one[5:], times[one[:5]], strict=True) if one.kind == "push_pull" else ():
            assert abs(at - then) <= run.clock_error_s + 1e-9
    run.save(tmp_path / "run.npz")
    assert ps.Run.load(tmp_path / "run.npz").clock_error_s == run.clock_error_s == run.to_dict()["clock_error_s"]


def test_machines_without_messages_between_them_are_left_as_they_are():
    messages = [Message("push", "worker 0", "server 0", 0, 9, 1.0, 2.0)]
    assert clock_offsets(messages, {}) == ({}, 0.0)
    assert clock_offsets(messages, {"server 0": "a", "worker 0": "b"}) == ({}, 0.0)  # nothing came back
    messages.append(Message("reply", "server 0", "worker 0", 1, 9, 2.0, 2.5))
    assert clock_offsets(messages, {"server 0": "a", "worker 0": "b"}) == ({}, 1.0)  # 0.75, and 0.25 uncorrected
    ahead = [messages[0]._replace(start=11.0), messages[1]._replace(end=12.5)]  # the worker's clock, by 10 seconds
    assert clock_offsets(ahead, {"server 0": "a", "worker 0": "b"}) == ({"worker 0": 9.75}, 0.75)
    assert clock_offsets(ahead, {"worker 0": "b", "server 0": "a"}) == ({"server 0": -9.75}, 0.75)
    assert clock_offsets(ahead, {"server 0": "a", "worker 0": "a"}) == ({}, 0.0)


# Files


@pytest.mark.parametrize("engine", ["threads", "a simulated link"])
@pytest.mark.parametrize("exchange", ["ps", "ring"])
def test_a_saved_run_keeps_its_messages_and_its_waits(engine, exchange, tmp_path):
    run = run_of(engine, exchange=exchange, delays=SLOW)
    assert run.messages
    assert run.waits
    run.save(tmp_path / "run.npz")
    loaded = ps.Run.load(tmp_path / "run.npz")
    assert (loaded.messages, loaded.waits) == (run.messages, run.waits)
    loaded.save(tmp_path / "again.npz")
    again = ps.Run.load(tmp_path / "again.npz")
    assert (again.messages, again.waits) == (run.messages, run.waits)


def test_a_message_that_lacks_an_end_is_saved_as_it_is(tmp_path):
    run = run_of("simulated", steps=1)
    run.trace = row("worker 0", ("serialize",), 1.0, 2.0) + row("server 0", ("serialize",), 3.0, 4.0, clock=3)
    run.save(tmp_path / "run.npz")
    assert ps.Run.load(tmp_path / "run.npz").messages == [
        Message("pull", "worker 0", "server 0", None, 9, 2.0, None),
        Message("pull", "worker 0", "server 0", 3, 9, None, 3.0),
    ]
    run.trace = Trace()
    run.save(tmp_path / "run.npz")
    empty = ps.Run.load(tmp_path / "run.npz")
    assert (empty.messages, empty.waits, empty.trace.joined_before) == ([], [], NOTHING)


@pytest.mark.parametrize("loaded", [False, True])
def test_a_resumed_run_has_the_messages_and_the_waits_of_both(loaded, tmp_path):
    fields = {"workers": 2, "transport": "inproc", "delays": SLOW}
    first = ps.train(PROBLEM, ps.Config(steps=4, **fields), engine="threads")
    messages, waits = first.messages, first.waits
    if loaded:
        first.save(tmp_path / "first.npz")
    before = tmp_path / "first.npz" if loaded else first
    run = ps.train(PROBLEM, ps.Config(steps=9, consistency="asp", **fields), engine="threads", resume=before)
    assert Counter(messages) <= Counter(run.messages)
    assert run.waits == waits  # there is none under ASP
    assert {(wait.who, wait.partners[0]) for wait in waits} <= {("worker 0", "worker 1"), ("worker 1", "worker 0")}
    assert waits
    assert sums(run) == (run.bytes_sent, run.bytes_received)
    assert {one.clock for one in run.messages if one.kind == "push_pull"} >= {*range(9)}


def test_to_chrome_draws_an_arrow_for_each_message(tmp_path):
    run = run_of("a simulated link", servers=2)
    run.trace.to_chrome(tmp_path / "run.json")
    events = json.loads((tmp_path / "run.json").read_text())["traceEvents"]
    rows = {event["tid"]: event["args"]["name"] for event in events if event["ph"] == "M"}
    assert {*rows.values()} == {f"worker {n}" for n in range(WORKERS)} | {"server 0", "server 1"}
    starts = {event["id"]: event for event in events if event["ph"] == "s"}
    ends = {event["id"]: event for event in events if event["ph"] == "f"}
    assert starts.keys() == ends.keys()
    drawn = [
        (one["name"], rows[one["tid"]], rows[ends[number]["tid"]], one["args"]["clock"], one["args"]["bytes"])
        for number, one in starts.items()
    ]
    assert Counter(drawn) == Counter(one[:5] for one in run.messages)
    took = {number: (ends[number]["ts"] - one["ts"]) / 1e6 for number, one in starts.items()}
    np.testing.assert_allclose(sorted(took.values()), sorted(one.end - one.start for one in run.messages), atol=1e-9)
    assert min(event["ts"] for event in events if "ts" in event) == 0.0
    assert all(event["bp"] == "e" for event in ends.values())


def test_to_chrome_leaves_out_a_message_that_lacks_an_end(tmp_path):
    row("worker 0", ("serialize",), 1.0, 2.0).to_chrome(tmp_path / "run.json")
    events = json.loads((tmp_path / "run.json").read_text())["traceEvents"]
    assert [event["ph"] for event in events] == ["M", "X"]


def test_a_wait_is_a_span_of_the_trace():
    run = run_of("threads", delays=SLOW, servers=2)
    spans = {span[1:] for span in run.trace if span.name == "wait"}
    assert run.waits
    assert all(type(wait) is Wait and wait[:4] in spans for wait in run.waits)
