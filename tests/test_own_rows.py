"""Workers with rows that neither the servers nor the other workers have: federated averaging."""

import dataclasses
import json
import re
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from test_byhand import Started, Working
from test_starting import until

import minips as ps
from minips import cli
from minips.training import byhand

ROWS = [30, 55, 90]
LEFT, EXCHANGES, EACH = 5, 12, 3
CONFIG = ps.Config(
    workers=3,
    steps=EXCHANGES * EACH,
    batch_size=None,
    local=ps.LocalSteps(steps=EACH, optimizer=ps.SGD(lr=0.3)),
    optimizer=ps.SGD(lr=1.0),
    aggregator="weightedmean",
    transport="inproc",
)


def rows_of(number, rows, l2=0.01):
    """A client's problem: rows of its own law, which nobody else has."""
    rng = np.random.default_rng(number)
    X = rng.normal(loc=number / 3, size=(rows, 5))
    y = (X @ rng.normal(size=5) > 0.5).astype(int) + (X[:, 0] > 1)
    return ps.SoftmaxRegression(X, y, classes=3, l2=l2)


SERVERS, CLIENTS = rows_of(7, 4), [rows_of(rank, rows) for rank, rows in enumerate(ROWS)]


def serial(absent=range(LEFT, EXCHANGES)):
    """Federated averaging in a loop, in which worker 0 is ``absent`` from these exchanges."""
    params = {"W": np.zeros((5, 3)), "b": np.zeros(3)}
    for exchange in range(EXCHANGES):
        there = [rank for rank in range(3) if rank > 0 or exchange not in absent]
        mean = {name: np.zeros_like(p) for name, p in params.items()}
        for rank in there:
            own = {name: p.copy() for name, p in params.items()}
            for _ in range(EACH):
                _, gradient = CLIENTS[rank].loss_and_gradient(own)
                for name in own:
                    own[name] -= 0.3 * gradient[name]
            for name in own:
                mean[name] += own[name] * ROWS[rank] / sum(ROWS[other] for other in there)
        params = mean
    return params


def assert_federated(run, params, missing=EXCHANGES - LEFT):
    for name, p in params.items():
        np.testing.assert_allclose(run.params[name], p, rtol=0, atol=1e-6)
    assert (run.updates, run.missing, run.stopped) == (3 * EXCHANGES - missing, missing, False)
    assert [step for _, step, _ in run.losses] == [*range(EACH, EXCHANGES * EACH + 1, EACH)]
    assert run.clocks * EACH == run.config.steps


def test_federated_averaging_with_one_that_leaves_and_one_that_is_late():
    with byhand.serving(SERVERS, CONFIG, None, "t") as served:
        address, clients = served.servers[0].address, []
        leaves = {"met": clients.append, "stop": lambda: clients[0].clock == LEFT}
        workers = [
            Working(CLIENTS[rank], address, rank=rank, own_rows=True, **(leaves if rank == 0 else {}))
            for rank in (0, 1)
        ]
        time.sleep(0.3)
        assert served.servers[0].shard.clocks == [0, 0, 0]
        workers.append(Working(CLIENTS[2], address, rank=2, own_rows=True))
        served.wait()
        assert [worker.result().pushes for worker in workers] == [LEFT, EXCHANGES, EXCHANGES]
        assert [one.rows for one in served.servers[0]._members] == ROWS
        run = served.end()
    assert_federated(run, serial())
    assert run.validation_loss is None


def test_one_that_comes_back_takes_part_where_the_others_are():
    with byhand.serving(SERVERS, CONFIG, None, "t") as served:
        server, clients = served.servers[0], []
        server.pause(3 * (LEFT + 1))  # one exchange after worker 0 has left
        leaves = {"met": clients.append, "stop": lambda: clients[0].clock == LEFT}
        workers = [
            Working(CLIENTS[rank], server.address, rank=rank, own_rows=True, **(leaves if rank == 0 else {}))
            for rank in range(3)
        ]
        assert workers[0].result().pushes == LEFT
        until(lambda: server.paused)
        back = Working(CLIENTS[0], server.address, rank=0, own_rows=True)
        until(lambda: server.status().workers[0].connected)
        server.go_on()
        served.wait()
        assert [worker.result().pushes for worker in (back, *workers[1:])] == [EXCHANGES] * 3
        run = served.end()
    assert_federated(run, serial(absent=[LEFT]), missing=1)


@pytest.mark.parametrize(
    ("changes", "client", "own", "words"),
    [
        (
            {},
            CLIENTS[0],
            False,
            r"differ in their rows: all workers divide.*own_rows=True to ps\.work, or --own-rows to minips",
        ),
        (
            {},
            ps.SoftmaxRegression(np.ones((9, 4)), [0, 1, 2] * 3),
            True,
            r"differ in their parameters: W float64\[4, 3\]",
        ),
        ({}, ps.LinearRegression(np.ones((9, 5)), np.ones(9)), True, "differ in their class"),
        (
            {"shards": "shuffled"},
            CLIENTS[0],
            True,
            r"divides its rows by shards=Shuffled\(\), but this worker has rows",
        ),
        ({"steps": 200, "epochs": 3}, CLIENTS[0], True, r"computed its steps from epochs=3 and its own rows.*--steps"),
    ],
)
def test_what_cannot_be_is_refused_before_a_rank_is_taken(changes, client, own, words):
    config = dataclasses.replace(CONFIG, **changes)
    with byhand.serving(SERVERS, config, None, "t") as served:
        with pytest.raises(ValueError, match=words) as caught:
            ps.work(client, served.servers[0].address, token="t", own_rows=own)
        assert not re.search(r"\w{64}", str(caught.value))
        status = served.servers[0].status()
        assert not any(one.connected or not one.counts for one in status.workers)
        assert served.servers[0].events == []
    with pytest.raises(TypeError, match="own_rows"):
        ps.work(client, "tcp://127.0.0.1:9", token="t", own_rows="yes")


def test_rows_of_the_servers_and_rows_of_ones_own_go_together():
    """A worker's shard is what it says: here one has its part of the server's rows, the other one its own."""
    problem, config = rows_of(0, 40), dataclasses.replace(CONFIG, workers=2, local=None, steps=4)
    with byhand.serving(problem, config, None, "t") as served:
        address = served.servers[0].address
        workers = [Working(problem, address, rank=0), Working(CLIENTS[2], address, rank=1, own_rows=True)]
        served.wait()
        assert [worker.result().pushes for worker in workers] == [4, 4]
        assert [one.rows for one in served.servers[0]._members] == [20, 90]
        assert served.end().accuracy is None


def test_batches_are_drawn_from_ones_own_rows(monkeypatch):
    seen = []
    problem = rows_of(1, 9)
    monkeypatch.setattr(
        problem,
        "loss_and_gradient",
        lambda params, rows=None: seen.append(rows) or rows_of(1, 9).loss_and_gradient(params),
    )
    config = dataclasses.replace(CONFIG, workers=1, local=None, steps=6, batch_size=3, sampling="epoch")
    with byhand.serving(SERVERS, config, None, "t") as served:
        assert ps.work(problem, served.servers[0].address, token="t", own_rows=True).pushes == 6
    for epoch in (seen[:3], seen[3:]):
        assert sorted(np.concatenate(epoch)) == [*range(9)]


LEAVING = """
import sys
import minips as ps
from test_own_rows import CLIENTS, LEFT
clients = []
stop = lambda: clients[0].clock == LEFT
print(ps.work(CLIENTS[0], sys.argv[1], token=sys.argv[2], rank=0, own_rows=True, met=clients.append, stop=stop))
"""


@pytest.mark.soak
def test_federated_averaging_in_four_processes(tmp_path):
    """A server, a worker that leaves, one that stays and one that comes late, each a process."""
    here = str(Path(__file__).parent)
    makers = "\n".join(f"def client_{rank}():\n    return CLIENTS[{rank}]" for rank in range(3))
    module = f"import sys\nsys.path.append({here!r})\nfrom test_own_rows import CLIENTS, SERVERS\n{makers}\n"
    (tmp_path / "ours.py").write_text(f"{module}def served():\n    return SERVERS\n")
    (tmp_path / "leaving.py").write_text(f"import sys\nsys.path.append({here!r})\n{LEAVING}")
    (tmp_path / "c.json").write_text(json.dumps(dataclasses.replace(CONFIG, transport="tcp").to_dict()))
    arguments = ["--problem", "ours:served", "--config", "c.json", "--token-file", "t", "--save", "run.npz"]
    with Started(tmp_path, "serve", *arguments) as server:
        address = re.search("--connect (.*) --token", server.until("    minips work --"))[1]
        token = (tmp_path / "t").read_text().strip()
        work = ["work", "--connect", address, "--token-file", "t", "--own-rows"]
        refused = cli.main(["work", "--data", "synthetic", "--connect", address, "--token-file", str(tmp_path / "t")])
        assert refused == 1
        with Started(tmp_path, *work, "--problem", "ours:client_1", "--rank", "1") as stays:
            stays.until("is connected to")
            with Started(tmp_path, "leaving.py", address, token, program=[sys.executable]) as leaves:
                while not ps.status(address, token).workers[0].connected:
                    time.sleep(0.05)
                time.sleep(1.0)
                status = ps.status(address, token)
                assert (status.awaited, status.applied) == ([2], 0)
                with Started(tmp_path, *work, "--problem", "ours:client_2", "--rank", "2") as late:
                    for one, pushes in ((late, EXCHANGES), (stays, EXCHANGES)):
                        code, out, _ = one.ended()
                        assert (code, f"after {pushes} pushes" in out) == (0, True)
                code, out, _ = leaves.ended()
                assert (code, out) == (0, f"<Work of worker 0: {LEFT} pushes>\n")
        code, out, error = server.ended()
    assert code == 0
    assert "Workers that had left did not make 7 of 36 updates.\n" in error
    assert re.search("^missing updates +7, of workers that had left$", out, re.MULTILINE)
    assert f"worker 0 has left at clock {LEFT}" in out
    assert_federated(ps.Run.load(tmp_path / "run.npz"), serial())
