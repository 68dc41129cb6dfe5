"""Runs that were served by hand go on: from the files of `serve` and of `train`, with what their workers have left."""

import contextlib
import dataclasses
import signal
import time

import numpy as np
import pytest
from test_byhand import WAIT_S, Started, Working, assert_same, served
from test_server import Raw

import minips as ps
from minips.drivers.client import Client
from minips.results import saved
from minips.training import byhand

PROBLEM = ps.SoftmaxRegression(*ps.datasets.synthetic(classes=3))  # --data synthetic
TOPK = ps.Codec(quantizer=ps.TopK(fraction=0.2), memory=ps.ErrorFeedback())
DELTA = ps.Codec(ps.QSGD(levels=8), memory=ps.Delta())
BASE = ps.Config(workers=2, servers=2, steps=12, batch_size=8, transport="inproc", optimizer=ps.Adam(lr=0.01))
FIELDS = {
    "exact": {},
    "topk": {"push": TOPK},
    "delta": {"push": DELTA, "pull": DELTA},
    "overlap": {"push": TOPK, "overlap": True},
}
fields = pytest.mark.parametrize("fields", FIELDS.values(), ids=FIELDS)


def serve(config, path, *, resume=None, stop_at=None, index=None):
    """Serve a run to its end, or until so many pushes are applied; save it, and return it as it was saved."""
    with byhand.serving(PROBLEM, config, None, "t", index, resume) as serving:
        workers = [Working(PROBLEM, [one.address for one in serving.servers], rank=rank) for rank in range(2)]
        if stop_at is None:
            serving.wait()
        else:
            until(lambda: serving.servers[0].shard.applied >= stop_at)
        run = serving.end()
        assert [worker.result().over for worker in workers] == [True, True]
    run.save(path)
    return ps.Run.load(path)


def until(holds):
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def simulated(config):
    return ps.train(PROBLEM, config.with_({"delays": None}), engine="simulated").params


@fields
def test_a_run_that_was_served_and_stopped_goes_on_to_the_bits_of_the_undisturbed_one(fields, tmp_path):
    config = BASE.with_({**fields, "delays": ps.Delays(seconds=0.01), "steps": 1000})
    first = serve(config, tmp_path / "run.npz", stop_at=6)
    assert first.stopped
    assert 6 <= first.updates < 100
    config = config.with_({"steps": first.updates // 2 + 6, "delays": None})
    expected = simulated(config)
    assert_same(serve(config, tmp_path / "again.npz", resume=first).params, expected)
    assert_same(ps.train(PROBLEM, config, engine="threads", resume=tmp_path / "run.npz").params, expected)
    assert first.events == []


@fields
def test_a_run_that_was_served_to_its_end_is_given_more_steps(fields, tmp_path):
    config = BASE.with_(fields)
    first = serve(config.with_({"steps": 5}), tmp_path / "run.npz")
    assert (first.updates, first.stopped) == (10, False)
    again = serve(config, tmp_path / "again.npz", resume=first)
    assert_same(again.params, simulated(config))
    assert (again.updates, [step for _, step, _ in again.losses]) == (24, [*range(1, 13)])
    assert_same(ps.train(PROBLEM, config, engine="threads", resume=first).params, again.params)


@fields
def test_a_run_of_train_is_served_on(fields, tmp_path):
    config = BASE.with_(fields)
    first = ps.train(PROBLEM, config.with_({"steps": 5}), engine="threads")
    assert_same(serve(config, tmp_path / "run.npz", resume=first).params, simulated(config))


def test_a_served_run_without_rounds_goes_on_with_all_pushes(tmp_path):
    config = BASE.with_({"consistency": "asp", "push": TOPK, "delays": ps.Delays(seconds=0.01), "steps": 1000})
    first = serve(config, tmp_path / "run.npz", stop_at=6)
    config = config.with_({"steps": first.updates // 2 + 6, "delays": None})
    run = serve(config, tmp_path / "again.npz", resume=first)
    assert run.updates == 2 * config.steps
    assert [sum(server["shard"]["clocks"]) for server in run.state["servers"]] == [run.updates] * 2


def test_one_of_several_servers_goes_on_from_its_own_file(tmp_path):
    config = BASE.with_({"push": TOPK, "overlap": True})
    runs = [None, None]
    for steps in (5, 12):
        config = config.with_({"steps": steps})
        with contextlib.ExitStack() as stack:
            parts = [stack.enter_context(byhand.serving(PROBLEM, config, None, "t", i, runs[i])) for i in range(2)]
            workers = [Working(PROBLEM, [one.servers[0].address for one in parts], rank=rank) for rank in range(2)]
            for part in parts:
                part.wait()
            for i, part in enumerate(parts):
                part.end().save(tmp_path / f"{i}.npz")
                runs[i] = ps.Run.load(tmp_path / f"{i}.npz")
            for worker in workers:
                worker.result()
    with contextlib.ExitStack() as stack:
        made = [stack.enter_context(byhand.serving(PROBLEM, BASE, None, "t", i)).servers[0].layout for i in range(2)]
    assert_same(ps.core.partition.join([run.params for run in runs], made), simulated(config))
    longer = config.with_({"steps": 20})
    with pytest.raises(ValueError, match=r"The run is only that of server 0: resume server 0 from it, not server 1\."):
        byhand.server_state(runs[0].state, 1, made[1])
    with pytest.raises(
        ValueError, match=r"differ in their parameters: W float32.20, 3., b float32.3. and W float32.32."
    ):
        ps.train(PROBLEM, longer, engine="threads", resume=runs[0])


def test_of_a_worker_that_was_killed_the_memory_begins_anew_and_the_run_says_so(tmp_path, monkeypatch):
    config = BASE.with_({"push": DELTA, "consistency": "asp", "delays": ps.Delays(seconds=0.01), "steps": 1000})
    close = Client.close

    def killed(client, **options):
        if client.worker == 1:
            client._shutdown()
        close(client, **options)

    monkeypatch.setattr(Client, "close", killed)
    first = serve(config, tmp_path / "run.npz", stop_at=6)
    monkeypatch.setattr(Client, "close", close)
    assert [worker is None for worker in first.state["workers"]] == [False, True]
    config = config.with_({"steps": first.updates // 2 + 6, "delays": None})
    for run in (
        serve(config, tmp_path / "again.npz", resume=first),
        ps.train(PROBLEM, config, engine="threads", resume=first),
    ):
        assert [text for _, text in run.events if "memories" in text] == [
            "worker 1 has no saved state: its memories begin anew"
        ]
        assert run.updates == 2 * config.steps
        for worker, link in enumerate(run.state["servers"][0]["links"]):  # both halves of the memory hold the same
            sent = run.state["workers"][worker]["links"][0]["encoder"]["memory"]
            for name, state in link["decoder"]["memory"].items():
                np.testing.assert_array_equal(state["known"], sent[name]["known"])


def test_each_server_goes_on_with_what_was_left_with_it(tmp_path):
    config = BASE.with_({"push": DELTA, "steps": 5})
    first = serve(config, tmp_path / "run.npz")
    server_state = byhand.server_state

    def without(state, index, layout):
        """Worker 0 had left nothing with server 1."""
        kept = server_state(state, index, layout)
        missing = index == 1
        return kept | {name: [None if missing else kept[name][0], kept[name][1]] for name in ("links", "left")}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(byhand, "server_state", without)
        run = serve(config.with_({"steps": 12}), tmp_path / "again.npz", resume=first)
    assert run.updates == 24
    for index in range(2):
        for worker, link in enumerate(run.state["servers"][index]["links"]):
            sent = run.state["workers"][worker]["links"][index]["encoder"]["memory"]
            for name, state in link["decoder"]["memory"].items():
                np.testing.assert_array_equal(state["known"], sent[name]["known"])


def test_of_an_older_client_the_memory_begins_anew_and_the_run_says_so(tmp_path, monkeypatch):
    config = BASE.with_({"push": DELTA, "pull": DELTA})
    first = serve(config.with_({"steps": 5}), tmp_path / "run.npz")
    resume = Client.resume
    monkeypatch.setattr(Client, "resume", lambda client: resume(client) if client.worker else None)
    run = serve(config, tmp_path / "again.npz", resume=first)
    assert sorted(text for _, text in run.events) == [
        f"server {i}: worker 0 did not fetch its saved state: its memories begin anew" for i in range(2)
    ]
    assert run.updates == 24
    assert [worker is None for worker in run.state["workers"]] == [True, False]


def test_a_connection_that_breaks_before_the_first_push_costs_nothing_that_was_left(tmp_path):
    config = BASE.with_({"push": DELTA, "pull": DELTA, "servers": 1, "transport": "tcp"})
    first = serve(config.with_({"steps": 5}), tmp_path / "run.npz")
    resume = Client.resume

    def broken(client):
        client._connections[0].channel._wire.shutdown()
        kept = resume(client)
        client._connections[0].channel._wire.shutdown()
        client.begin(client.protocol.ask_all("alive"), timed=False).result(WAIT_S)
        return kept

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Client, "resume", broken)
        run = serve(config, tmp_path / "again.npz", resume=first)
    assert run.updates == 24
    assert not [text for _, text in run.events if "memories" in text]
    for worker, link in enumerate(run.state["servers"][0]["links"]):
        for side, other in (("decoder", "encoder"), ("encoder", "decoder")):
            kept = run.state["workers"][worker]["links"][0][other]["memory"]
            for name, state in link[side]["memory"].items():
                np.testing.assert_array_equal(state["known"], kept[name]["known"])


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"link": 3, "seen": None},
        {"link": {"encoder": {"memory": {}, "draws": {"bit_generator": "PCG64"}}}, "seen": None},
        {"link": {"encoder": {"memory": {"w": 1}, "draws": 1}, "decoder": {}, "version": 0}, "seen": None},
        "seen",
        "nested",
    ],
)
def test_a_state_that_nobody_could_go_on_from_is_refused_and_the_worker_has_left(state):
    config = ps.Config(transport="inproc", consistency="asp", workers=1, timeout_s=WAIT_S)
    with ps.Server({"w": np.zeros(3)}, config, updates=4).serve() as server, Raw(server) as client:
        client.say("hello")
        assert client.say("state").header["leave"] is True
        link = ps.core.protocol.ServerRecord(config, 0, 0, ps.Trace())
        whole = {"link": link.state(), "seen": None}
        if state == "seen":
            state = {**whole, "seen": [{"w": np.full(3, np.nan)}, (0,), None]}
        arrays = saved.to_arrays(whole if state == "nested" else state)
        if state == "nested":
            arrays["minips"] = np.frombuffer(b"[" * 100_000 + b"]" * 100_000, np.uint8)
        with pytest.raises(ValueError, match="The state that this worker leaves is "):
            client.say("bye", arrays, state=True)
        assert (server.report()["left"], server.shard.live, server.connected) == ([None], set(), 0)


@dataclasses.dataclass(frozen=True)
class Keeps(ps.Memory):
    """Keeps what no message carries."""

    name = "keeps"

    def compensate(self, x, state):
        state["kept"] = self.kept
        return x

    def update(self, p, sent, state):
        pass


@pytest.mark.usefixtures("registry")
@pytest.mark.parametrize("kept", [np.array(["a text"]), object()], ids=["text", "object"])
def test_a_memory_that_cannot_travel_stays_behind_and_the_run_says_so(kept, monkeypatch):
    monkeypatch.setattr(Keeps, "kept", kept, raising=False)
    config = ps.Config(workers=1, steps=4, transport="inproc", push=ps.Codec(memory=ps.register(Keeps)()))
    with ps.Server(PROBLEM.init(None), config, updates=4).serve(token="t") as server:
        worker = Working(PROBLEM, server.address, config=config)
        run = server.wait(WAIT_S)
        assert worker.result().pushes == 4
        until(lambda: server.events)
        [(_, event)] = server.events
    assert (run.updates, run.state["workers"]) == (4, [None])
    assert event.startswith("worker 0 has left: its memories were not saved: ")


def test_a_server_without_an_end_keeps_nothing_of_its_workers():
    config = ps.Config(transport="inproc", workers=1)
    with ps.Server({"w": np.zeros(3)}, config).serve() as server, Raw(server) as client:
        client.say("hello")
        assert client.say("state").header["leave"] is False


# A process for each


@pytest.mark.soak
@pytest.mark.parametrize("way", ["serve", pytest.param("train", marks=pytest.mark.soak)])
def test_a_served_run_that_ctrl_c_has_stopped_goes_on_from_the_command_line(way, tmp_path):
    options = ["--workers", "2", "--servers", "2", "--quantizer", "topk", "--memory", "errorfeedback"]
    with served(tmp_path, *options, "--steps", "100000", "--save", "run.npz") as (server, address, work):
        with Started(tmp_path, *work) as one, Started(tmp_path, *work) as other:
            for started in (one, other):
                started.until("is connected to")
            token = (tmp_path / "t").read_text().strip()
            until(lambda: ps.status(address.split(",")[0], token).applied > 20)
            server.process.send_signal(signal.SIGINT)
            assert [started.ended()[0] for started in (one, other)] == [0, 0]
        assert server.ended()[0] == 130
    first = ps.Run.load(tmp_path / "run.npz")
    assert all(first.state["workers"])
    more = ["--resume", "run.npz", "--steps", str(first.updates // 2 + 10), "--save", "all.npz"]
    if way == "serve":
        with served(tmp_path, *more) as (server, _, work):
            with Started(tmp_path, *work) as one, Started(tmp_path, *work) as other:
                assert [started.ended()[0] for started in (one, other)] == [0, 0]
            assert server.ended()[0] == 0
    else:
        with Started(tmp_path, "train", "--data", "synthetic", *more) as trained:
            assert trained.ended()[0] == 0
    run = ps.Run.load(tmp_path / "all.npz")
    assert run.updates == first.updates + 20
    assert_same(run.params, simulated(run.config))
