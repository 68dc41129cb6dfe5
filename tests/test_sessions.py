"""The protocol is told once: a change of its text changes a run, a simulation and a prediction alike."""

import inspect
import json
import sys
import textwrap
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
from test_golden import CLOCKS, CONFIGS, Pull

import minips as ps
from minips import seeds
from minips.core import loop, reduction, sessions
from minips.core.loop import Call, Seen, train_served
from minips.core.protocol import ServerProtocol, WorkerProtocol
from minips.core.reduction import AllReduceState
from minips.core.sessions import Session
from minips.core.shard import Shard
from minips.cost import performance_model, probe
from minips.drivers import peer
from minips.engines import replica, worker
from minips.engines.simulated import central, mutual

EXCHANGES = {"ring": 4, "tree": 5, "halvingdoubling": 8, "twoshot": 5}
EVERY_CLOCK, COMPUTING = {"threads", "simulated", "predicted"}, {"threads", "simulated"}
HOLDERS = [loop, reduction, worker, replica, peer, central, mutual, performance_model]
"""The modules that hold a training loop, or the session of an all-reduce."""
LEFT = 3
"""The steps that a worker makes which leaves, or falls silent."""
WAIT_S = 20.0


def leaving(
    worker: WorkerProtocol, overlap: bool, over: Callable[[], bool] = lambda: False, seen: Seen | None = None
) -> Session[Seen]:
    """The training loop, in which worker 1 says goodbye in the middle of the run."""
    seen = yield from falling_silent(worker, overlap, over, seen)
    if worker.worker == 1:
        yield Call(worker.ask_all("bye"))
    return seen


def falling_silent(
    worker: WorkerProtocol, overlap: bool, over: Callable[[], bool] = lambda: False, seen: Seen | None = None
) -> Session[Seen]:
    """The training loop, in which worker 1 stops in the middle of the run."""
    return train_served(worker, overlap, lambda: over() or (worker.worker == 1 and worker.clock == LEFT), seen)


class Mutation(NamedTuple):
    """One change of the protocol's text, and the clocks under which it shows; ``changes`` of the config, and the
    training loop, with which it does.
    """

    function: Any
    before: str
    after: str
    clocks: set[str]
    changes: dict[str, Any] = {}
    loop: Any = train_served


ALL_REDUCE = {
    "the last reduce hop is left out": Mutation(
        reduction.all_reduce,
        "for group in rounds(part.hops, part.direct):\n",
        "for group in rounds(part.hops, part.direct):\n"
        "        number, hop = group[-1]\n"
        "        if hop.adds and not part.hops[number + 1].adds:\n            continue\n",
        EVERY_CLOCK,
    ),
    "a hop forgets its sum": Mutation(
        reduction.all_reduce,
        "partial(part.incoming, number, parcel)",
        "(lambda: None) if hop.adds else partial(part.incoming, number, parcel)",
        COMPUTING,
    ),
}
SERVED = {
    "a round closes one push early": Mutation(
        Shard._complete_round, "arrived < self.quorum", "arrived < self.quorum - 1", EVERY_CLOCK
    ),
    "a pull does not wait": Mutation(ServerProtocol._pull, "if not shard.may_pull(worker):", "if False:", EVERY_CLOCK),
    "an answer is one version old": Mutation(
        ServerProtocol._pull,
        'reply.header["version"], reply.tensors = self.read(worker)\n',
        "version, params = self.read(worker); kept = self.__dict__.setdefault('kept', {}); "
        "kept[version] = {name: x.copy() for name, x in params.items()}; "
        'reply.header["version"], reply.tensors = version, kept[max(min(kept), version - 1)]\n',
        COMPUTING,
    ),
    "a worker forgets to pull": Mutation(
        train_served,
        "params, versions = (yield Call(push_pull)), worker.versions\n",
        "yield Call(worker.push(gradients, loss, gradient_versions, pulls=False))\n",
        EVERY_CLOCK,
    ),
    "an overlap waits for the newest parameters": Mutation(
        train_served,
        "travelling = yield Begin(push_pull)\n",
        "params, versions = (yield Call(push_pull)), worker.versions\n",
        EVERY_CLOCK,
        {"overlap": True},
    ),
    "one that has left is waited for": Mutation(
        Shard.depart,
        "self.live.discard(self.validate_worker(worker))",
        "self.validate_worker(worker)",
        EVERY_CLOCK,
        {"timeout_s": 0.5},
        leaving,
    ),
}
STRAGGLER = ps.Config(workers=3, delays=ps.Delays(seconds=0.004, slow={1: 5.0}), steps=6, batch_size=4)


def mutate(monkeypatch: pytest.MonkeyPatch, mutation: Mutation) -> None:
    """Put the changed function wherever the one of before is known."""
    function, before, after = mutation[:3]
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(before) == 1
    made: dict[str, Any] = {}
    exec(source.replace(before, after), {**vars(sys.modules[function.__module__])}, made)
    owner, _, name = function.__qualname__.rpartition(".")
    if owner:
        monkeypatch.setattr(vars(sys.modules[function.__module__])[owner], name, made[name])
    else:
        put(monkeypatch, function, made[name])


def put(monkeypatch: pytest.MonkeyPatch, function: Any, other: Any) -> None:
    """Put another function wherever this one is known."""
    for holder in HOLDERS:
        if vars(holder).get(function.__name__) is function:
            monkeypatch.setattr(holder, function.__name__, other)


def result(config: ps.Config, clock: str) -> Any:
    """What a run, a simulation or a prediction is judged by: parameters, or time; or how it failed."""
    try:
        found = json.loads(json.dumps(CLOCKS[clock](config)))
    except RuntimeError as error:
        return type(error).__name__, None
    return found.get("parameters"), found.get("seconds")


@pytest.mark.parametrize("mutation", ALL_REDUCE)
@pytest.mark.parametrize(
    "name", ["ring", "tree, eight bits", "halving-doubling, overlap", "two shots, eight bits, a link"]
)
def test_a_change_of_the_all_reduce_shows_under_every_clock(
    name: str, mutation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = CONFIGS[name].from_dict({**CONFIGS[name].to_dict(), "steps": 6, "batch_size": 4})
    right = {clock: result(config, clock) for clock in CLOCKS}
    mutate(monkeypatch, ALL_REDUCE[mutation])
    assert {clock for clock in CLOCKS if result(config, clock) != right[clock]} == ALL_REDUCE[mutation].clocks


@pytest.mark.parametrize("mutation", SERVED)
def test_a_change_of_what_servers_and_workers_do_shows_under_every_clock(
    mutation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = SERVED[mutation]
    config = replace(STRAGGLER, **one.changes)
    put(monkeypatch, train_served, one.loop)
    right = {clock: result(config, clock) for clock in CLOCKS}
    assert right["simulated"][0] == right["threads"][0] != "RuntimeError"
    mutate(monkeypatch, one)
    assert {clock for clock in CLOCKS if result(config, clock) != right[clock]} == one.clocks


THREE = ps.Config(workers=3, steps=6, batch_size=4, timeout_s=WAIT_S)


def made(run: ps.Run) -> dict[int, int]:
    """The clock of each worker's last pull in a run that is not over."""
    return {grant.worker: grant.clock for grant in sorted(run.grants)}


def test_a_round_is_completed_without_a_worker_that_has_left_as_in_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, train_served, leaving)
    simulated, real = (ps.train(Pull(), THREE, engine=engine) for engine in ("simulated", "threads"))
    assert all(simulated.params[name].tobytes() == x.tobytes() for name, x in real.params.items())
    assert simulated.updates == real.updates == 3 * LEFT + 2 * (THREE.steps - LEFT)
    assert made(simulated) == made(real) == {0: 5, 1: LEFT, 2: 5}
    for run in (simulated, real):
        assert run.missing == THREE.steps - LEFT
        assert [text for _, text in run.events] == [f"server 0: worker 1 has left at clock {LEFT}"]


def silenced() -> ps.Server:
    """A server after a run by hand, in which worker 1 has fallen silent."""
    params, over = Pull().init(seeds.init(THREE.seed)), threading.Event()

    def work(rank: int) -> None:
        with ps.connect(server.address, THREE, worker=rank, token=server.token) as client:
            worker.train_ps(Pull().shard(rank, 3), THREE, client, over)
            if rank == 1:
                client._closing.set()  # its heart stops, and it says no goodbye
                over.wait(WAIT_S)

    with ps.Server(params, THREE, updates=18, silence_s=1.0).serve() as server:
        threads = [threading.Thread(target=work, args=(rank,)) for rank in range(3)]
        for thread in threads:
            thread.start()
        for rank in (0, 2):
            threads[rank].join(WAIT_S)
        over.set()
        threads[1].join(WAIT_S)
        return server


def test_a_round_is_completed_without_a_worker_that_has_fallen_silent_as_in_a_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put(monkeypatch, train_served, falling_silent)
    server, silence_s, left, leave = silenced(), 30.0, Counter[int](), ServerProtocol.leave
    monkeypatch.setattr(
        ServerProtocol, "leave", lambda self, worker, event="": left.update([worker]) or leave(self, worker, event)
    )
    assert [text.partition(" for ")[0] for _, text in server.events] == ["worker 1 has been silent"]
    for servers, compute_s in ((1, 1.0), (2, 1.0), (2, 50.0)):  # in the last one all others are silent for longer, too
        config = replace(THREE, servers=servers)
        run = ps.train(Pull(), config, engine=ps.Simulated(compute_s=compute_s))
        assert all(run.params[name].tobytes() == x.tobytes() for name, x in server.params.items())
        assert sorted(run.grants) == sorted(server.shard.grants)
        assert (run.updates, made(run)) == (3 * LEFT + 2 * (THREE.steps - LEFT), {0: 5, 1: LEFT, 2: 5})
        assert [text.partition(" for ")[0] for _, text in run.events] == [
            f"server {index}: worker 1 has been silent" for index in range(servers)
        ]
        assert left == dict.fromkeys(range(3), servers), "who is dropped says no goodbye"
        left.clear()
        dropped = max(at for at, _ in run.events)
        assert silence_s < dropped - LEFT * compute_s <= 1.5 * silence_s
        assert run.seconds == pytest.approx(max(dropped, (LEFT + 1) * compute_s) + 2 * compute_s)


def test_no_other_client_is_a_worker_in_virtual_time_before_that_has_fallen_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put(monkeypatch, train_served, falling_silent)
    told, begin = [], central.SimServer.begin

    def come(server: central.SimServer) -> None:
        """Another client says that it is worker 1, and leaves again."""
        other = central.SimWorker(server.simulation, 1, [server])
        other._records[0].secret = "a" * 32
        protocol = WorkerProtocol(1, other._records)
        try:
            other.at_once(protocol.hello())
            told.append(server.protocol.membership.members[1].secret)
            other.at_once(protocol.ask_all("bye"))
        except ValueError as error:
            told.append(str(error))

    def began(server: central.SimServer, state: Any) -> None:
        begin(server, state)
        for when in (2.5, 20.5, 42.0):
            server.events.at(when, partial(come, server))

    monkeypatch.setattr(central.SimServer, "begin", began)
    run = ps.train(Pull(), THREE, engine=ps.Simulated(compute_s=1.0))
    assert [text.partition(", and this hello")[0] for text in told] == [
        "Worker 1 is held by another session, which was heard 0.5 s ago",
        "Worker 1 is held by another session, which was heard 17.5 s ago",
        "a" * 32,
    ]
    assert run.updates == 3 * LEFT + 2 * (THREE.steps - LEFT)


def carry_out_together(ranks: list[Session[Any]]) -> list[Any]:
    """Carry out sessions that send to each other, in this thread, by turns; what each returns."""
    boxes: dict[tuple[int, int], deque[Any]] = defaultdict(deque)
    needs: list[Any] = [next(session) for session in ranks]
    results: dict[int, Any] = {}

    def ends(rank: int) -> bool:
        """Go on as far as it goes without a message that has not come; True at the session's end."""
        while True:
            match needs[rank]:
                case sessions.Do(call=call):
                    answer = call()
                case sessions.Send(to, parcel):
                    boxes[rank, to].append(parcel)
                    answer = None
                case sessions.Receive(source):
                    if not boxes[source, rank]:
                        return False
                    answer = boxes[source, rank].popleft()
            try:
                needs[rank] = ranks[rank].send(answer)
            except StopIteration as end:
                results[rank] = end.value
                return True

    left = list(range(len(ranks)))
    while left:
        left = [rank for rank in left if not ends(rank)]
    return [results[rank] for rank in range(len(ranks))]


@pytest.mark.parametrize("name", EXCHANGES)
def test_by_turns_and_by_sizes_alone_the_same_is_said(name: str) -> None:
    workers, exchange = EXCHANGES[name], ps.stage.build("exchange", name)
    gradients = [{"w": np.arange(17, dtype="f4") + rank} for rank in range(workers)]
    config = ps.Config(exchange=exchange, workers=workers)
    parts = [AllReduceState(config, rank, gradients[0], ps.Trace()) for rank in range(workers)]
    for part, own in zip(parts, gradients, strict=True):
        part.begin(0, own)
    means = carry_out_together([reduction.all_reduce(part) for part in parts])
    assert all((mean["w"] == means[0]["w"]).all() for mean in means)
    np.testing.assert_allclose(means[0]["w"], np.mean([own["w"] for own in gradients], axis=0), rtol=1e-6)

    sizes = [
        performance_model.Declared(one.hops, [*map(float, range(len(one.hops)))], one.sizes, one.direct)
        for one in parts
    ]
    scripts = [list(reduction.all_reduce(size)) for size in sizes]  # what it receives makes no difference
    sent = Counter(
        (rank, need.to, need.number)
        for rank, needs in enumerate(scripts)
        for need in needs
        if isinstance(need, sessions.Send)
    )
    come = Counter(
        (need.source, rank, need.number)
        for rank, needs in enumerate(scripts)
        for need in needs
        if isinstance(need, sessions.Receive)
    )
    assert sent == come, "every message is received, at the hop at which it was sent"
    assert all(count == 1 for count in sent.values())


def test_a_probe_of_steps_makes_the_same_steps() -> None:
    config = ps.Config.from_dict({**CONFIGS["ring"].to_dict(), "steps": 4, "batch_size": None})
    problem = ps.SoftmaxRegression(*ps.datasets.synthetic(rows=64, features=5, classes=3))
    run = ps.train(problem, config, engine="threads")
    *_, params = probe.rounds(problem, config)
    assert all((params[name] == run.params[name]).all() for name in params)
