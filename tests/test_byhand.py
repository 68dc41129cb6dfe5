"""Servers and workers by hand: in Python, and from the command line with a process for each."""

import contextlib
import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import trustme

import minips as ps
from minips import cli, seeds
from minips.drivers.connecting import transport_of
from minips.training import byhand

MINIPS = [sys.executable, "-m", "minips"]
WAIT_S = 30.0
PROBLEM = ps.SoftmaxRegression(*ps.datasets.synthetic(classes=3))  # --data synthetic
TWO = ps.Config(workers=2, steps=12, batch_size=8, push=ps.Codec(ps.QSGD(levels=8)), transport="inproc")


def serving(config=TWO, updates=None):
    params = PROBLEM.init(seeds.init(config.seed))
    return ps.Server(params, config, updates=updates or config.workers * config.steps).serve(token="t")


class Working:
    """A worker in a thread; ``result()`` is what it returned, or raises what it raised."""

    def __init__(self, problem, address, **options):
        self._got = []
        self._thread = threading.Thread(target=self._run, args=(problem, address), kwargs=options)
        self._thread.start()

    def _run(self, problem, address, **options):
        try:
            self._got.append(ps.work(problem, address, token="t", **options))
        except Exception as error:
            self._got.append(error)

    def result(self):
        self._thread.join(WAIT_S)
        (got,) = self._got
        if isinstance(got, Exception):
            raise got
        return got


def assert_same(params, others):
    assert params.keys() == others.keys()
    for name, p in params.items():
        assert p.tobytes() == others[name].tobytes()


# In Python


@pytest.mark.parametrize("link", [None, ps.Link(1e9, 1e-4)], ids=["bare", "behind a link"])
def test_a_run_by_hand_ends_as_train_does_to_the_bit(link):
    config = dataclasses.replace(TWO, link=link)
    with serving(config) as server:
        workers = [Working(PROBLEM, server.address) for _ in range(2)]
        run = server.wait(WAIT_S, problem=PROBLEM)
        done = [worker.result() for worker in workers]
    trained = ps.train(PROBLEM, config, engine="threads")
    assert_same(run.params, trained.params)
    assert [row[1:] for row in run.losses] == [row[1:] for row in trained.losses]
    assert (run.updates, run.accuracy, run.validation_loss) == (24, trained.accuracy, trained.validation_loss)
    assert sorted(one.worker for one in done) == [0, 1]
    for one in done:
        assert (one.pushes, one.over, one.diverged) == (12, True, None)
        assert_same(one.params, run.params)
    assert 0 < run.bytes_sent - sum(one.bytes_sent for one in done) < 2 * 100  # the question for a number


def test_workers_wait_until_all_are_there():
    with serving(dataclasses.replace(TWO, consistency="asp", timeout_s=0.3)) as server:
        first = Working(PROBLEM, server.address)
        while not server.connected:
            time.sleep(0.01)
        time.sleep(0.5)
        assert server.shard.clocks == [0, 0]
        second = Working(PROBLEM, server.address)
        assert server.wait(WAIT_S).updates == 24
        assert {first.result().worker, second.result().worker} == {0, 1}


def test_a_worker_that_was_lost_goes_on_where_it_was():
    config = dataclasses.replace(TWO, workers=1, delays=ps.Delays(0.02))
    trained = ps.train(PROBLEM, dataclasses.replace(config, delays=None), engine="threads")
    with serving(config) as server:
        halt = threading.Event()
        first = Working(PROBLEM, server.address, rank=0, stop=halt)
        while server.shard.applied < 3:
            time.sleep(0.01)
        halt.set()
        before = first.result()
        assert not before.over
        assert 3 <= before.pushes < 12
        after = Working(PROBLEM, server.address, rank=0).result()
        run = server.wait(WAIT_S)
    assert after.pushes == 12
    assert run.losses[-1][1] == trained.losses[-1][1]


class Bursts(ps.SoftmaxRegression):
    """Its loss is infinite after some steps; or, from the first step on, it fails."""

    fails = False

    def loss_and_gradient(self, params, rows=None):
        if self.fails:
            raise KeyError("no such column")
        loss, gradient = super().loss_and_gradient(params, rows)
        return (np.inf if np.abs(params["W"]).sum() > 0.05 else loss), gradient


def test_a_gradient_that_is_not_finite_ends_the_run_for_all():
    problem = Bursts(*ps.datasets.synthetic(classes=3))
    with serving(dataclasses.replace(TWO, steps=10_000)) as server:
        workers = [Working(problem, server.address, rank=rank) for rank in range(2)]
        run = server.wait(WAIT_S)
        done = [worker.result() for worker in workers]
    assert re.match(r"At step \d+ of worker [01]: The training loss is inf", run.diverged)
    assert run.diverged in [one.diverged for one in done]
    assert all(one.over for one in done)
    assert not run.stopped


def test_what_a_problem_raises_reaches_the_servers_events():
    problem = Bursts(*ps.datasets.synthetic(classes=3))
    problem.fails = True
    with serving(dataclasses.replace(TWO, workers=1)) as server:
        with pytest.raises(KeyError, match="no such column"):
            ps.work(problem, server.address, token="t")
        status = ps.status(server.address, "t")
        assert (status.workers[0].connected, status.workers[0].counts) == (False, False)
        assert [text for _, text in server.events] == ["worker 0 has left: KeyError: 'no such column'"]


def test_a_problem_whose_own_connection_breaks_reaches_the_servers_events(monkeypatch):
    problem = ps.SoftmaxRegression(*ps.datasets.synthetic(classes=3))

    def hung_up(*_):
        raise ConnectionResetError("the data store hung up")

    monkeypatch.setattr(problem, "shard", hung_up)
    with serving(dataclasses.replace(TWO, workers=1)) as server:
        with pytest.raises(ConnectionResetError, match="data store"):
            ps.work(problem, server.address, token="t")
        assert [text for _, text in server.events] == [
            "worker 0 has left: ConnectionResetError: the data store hung up"
        ]


def test_two_servers_at_ports_that_follow_each_other():
    config = dataclasses.replace(TWO, servers=2, transport="tcp", push=ps.Codec())
    with byhand.serving(PROBLEM, config, None, "t") as served:
        addresses = [server.address for server in served.servers]
        workers = [Working(PROBLEM, addresses) for _ in range(2)]
        served.wait()
        run = served.end()
        for worker in workers:
            worker.result()
    trained = ps.train(PROBLEM, dataclasses.replace(config, servers=1), engine="threads")
    assert_same(run.params, trained.params)
    assert (run.updates, run.accuracy) == (24, trained.accuracy)
    assert [byhand._next(f"tcp://127.0.0.1:{port}", 2) for port in (7071, 0)] == [
        "tcp://127.0.0.1:7073",
        "tcp://127.0.0.1:0",
    ]
    epochs = config.with_({"steps": 200, "epochs": 2, "sampling": "epoch", "batch_size": 16})
    with byhand.serving(PROBLEM, epochs, None, "t", index=1) as served:
        assert served.servers[0].config == epochs.for_rows(PROBLEM.rows)
        (server,) = served.servers
        assert ps.status(server.address, "t").index == 1
        assert served.end().params.keys() == server.params.keys()


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda address: ps.work(3, address, token="t"), TypeError, "work takes a problem"),
        (lambda address: ps.work(PROBLEM, address, token="no"), PermissionError, "token"),
        (lambda address: ps.work(PROBLEM, address, token="t", rank=7), ValueError, "There are workers 0 to 1; got"),
        (lambda address: ps.work(PROBLEM, "morse://x", token="t"), ValueError, "begins with a transport's name"),
        (lambda address: ps.status("inproc", "t"), ValueError, "begins with a transport's name.*got 'inproc'"),
        (lambda address: ps.status(address, ""), ValueError, "not empty"),
        (lambda address: ps.status(address, "t", over_s=-1), ValueError, "over_s takes seconds above 0"),
        (
            lambda address: ps.work(PROBLEM, address, token="t", stop=3),
            TypeError,
            "stop takes a threading.Event, or a function",
        ),
        (lambda address: ps.status("tcp://127.0.0.1:9", "t"), ConnectionError, "No server answers"),
    ],
)
def test_what_cannot_work_is_refused_in_a_sentence(call, kind, words):
    with serving() as server, pytest.raises(kind, match=words):
        call(server.address)


def test_an_all_reduce_has_no_server():
    config = dataclasses.replace(TWO, exchange=ps.RingAllReduce(), push=ps.Codec())
    with pytest.raises(ValueError, match="has no server"), byhand.serving(PROBLEM, config, None, "t"):
        pass


def test_a_serializer_that_can_run_code_is_taken_from_no_server():
    config = dataclasses.replace(TWO, workers=1, push=ps.Codec(serializer="pickle"))
    with serving(config) as server:
        with pytest.raises(ValueError, match="names a serializer that can run code"):
            ps.work(PROBLEM, server.address, token="t")
        assert ps.work(PROBLEM, server.address, token="t", config=config).pushes == 12


@pytest.fixture(scope="module")
def papers(tmp_path_factory):
    """Files for TLS, of a server that is 127.0.0.1."""
    place, authority = tmp_path_factory.mktemp("papers"), trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    issued.cert_chain_pems[0].write_to_path(place / "certificate.pem")
    issued.private_key_pem.write_to_path(place / "key.pem")
    authority.cert_pem.write_to_path(place / "authority.pem")
    return {name: str(place / f"{name}.pem") for name in ("certificate", "key", "authority")}


def test_tls_by_hand(papers):
    speaking = ps.Tcp(certificate=papers["certificate"], key=papers["key"])
    with serving(dataclasses.replace(TWO, workers=1, transport=speaking)) as server:
        trusting = ps.Tcp(authority=papers["authority"])
        assert not ps.status(server.address, "t", transport=trusting).done
        assert ps.work(PROBLEM, server.address, token="t", transport=trusting).pushes == 12
        with pytest.raises(ConnectionError):
            ps.status(server.address, "t", timeout=1.0)


def test_an_address_says_its_transport():
    for name in ("tcp", "inproc", "pipe", "shm", "http"):
        assert transport_of(f"{ps.build('transport', name).scheme}://x") == ps.build("transport", name)


# Who may be reached, and who may read


PAPERS = ps.Tcp(certificate="c.pem", key="k.pem")


@pytest.mark.parametrize(
    ("transport", "address", "plaintext"),
    [
        (ps.Tcp(), "tcp://127.0.0.1:7071", False),
        (ps.Tcp(), "tcp://127.1.2.3:7071", False),
        (ps.Tcp(), "tcp://[::1]:7071", False),
        (ps.Tcp(), "tcp://localhost:7071", False),
        (ps.Tcp(), "tcp://:7071", False),
        (ps.Tcp(), None, False),
        (ps.InProc(), None, False),
        (ps.Pipe(), "pipe://name", False),
        (PAPERS, "tcp://0.0.0.0:7071", False),
        (ps.Tcp(authority="a.pem"), "tcp://parameters.example:7071", False),
        (ps.Tcp(), "tcp://10.0.0.7:7071", True),
        (ps.Http(), "http://10.0.0.7:7071", True),
    ],
)
def test_what_stays_on_this_machine_or_is_encrypted_or_wanted_may_travel(transport, address, plaintext):
    file = "authority" if getattr(transport, "authority", "") else "certificate"
    assert transport.plain(address, file, plaintext) == plaintext


def test_an_authority_encrypts_nothing_that_is_served_and_a_certificate_nothing_that_is_connected_to():
    for transport, file in ((PAPERS, "authority"), (ps.Tcp(authority="a.pem"), "certificate")):
        with pytest.raises(ValueError, match="there is no TLS"):
            transport.plain("tcp://0.0.0.0:7071", file, False)


@pytest.mark.parametrize(
    "address", ["0.0.0.0", "10.0.0.7", "[::]", "[fe80::1]", "parameters.example", "127.0.0.1.example"]
)
@pytest.mark.parametrize("transport", [ps.Tcp(), ps.Http()], ids=["tcp", "http"])
def test_plaintext_to_other_machines_is_refused(transport, address):
    with pytest.raises(ValueError, match=r"there is no TLS.*--plaintext"):
        transport.plain(f"{transport.scheme}://{address}:7071", "certificate", False)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("serve --bind tcp://0.0.0.0:0 --token-file t", "no TLS"),
        ("serve --transport http --bind http://10.0.0.7:1 --token-file t", "no TLS"),
        ("serve --transport http --certificate c.pem --token-file t", "which tcp speaks and Http"),
        ("serve --token-file t --save /nonexistent/run.npz", "There is no folder /nonexistent"),
        ("serve --exchange ring --token-file t --data synthetic", "has no server"),
        ("serve --servers 2 --index 2 --token-file t --data synthetic", "index is 0 to 1, got 2"),
        ("serve --rejoin-s 0 --token-file t --data synthetic", "rejoin_s takes seconds above 0 and at most"),
        ("serve --servers 2 --transport pipe --bind pipe://x --token-file t --data synthetic", "has no port"),
        ("work --connect tcp://10.0.0.7:1 --token-file t", "no TLS"),
        ("work --connect tcp://127.0.0.1:9 --token-file t", "The token file t cannot be read: no such file"),
        ("work --connect tcp://127.0.0.1:9 --token-file empty", "The token file empty is empty"),
        (
            "work --connect tcp://127.0.0.1:9 --token-file given --data synthetic --start-timeout-s 0.2",
            "No server answers at tcp://127.0.0.1:9",
        ),
        ("status tcp://10.0.0.7:1,tcp://127.0.0.1:9 --token-file given", "no TLS"),
        ("status tcp://127.0.0.1:9 --token-file given", "No server answers"),
    ],
)
def test_what_cannot_be_is_one_sentence_and_exit_status_2(arguments, words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in {"empty": "\n", "given": "secret\n"}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o600)
    assert cli.main(arguments.split()) == (1 if "No server answers" in words else 2)
    said = capsys.readouterr().err.strip()
    assert words in said.splitlines()[-1]
    assert len(said.splitlines()) <= 1 + ("serve" in arguments)


def test_a_rank_is_a_number_or_auto(capsys):
    with pytest.raises(SystemExit):
        cli.main(["work", "--connect", "tcp://127.0.0.1:9", "--token-file", "t", "--rank", "first"])
    assert "expected a worker's number, from 0 on, or auto; got 'first'" in capsys.readouterr().err


@pytest.mark.skipif(os.name != "posix", reason="modes are of POSIX")
def test_a_token_file_is_for_its_owner_alone(tmp_path, capsys):
    file = str(tmp_path / "token")
    token = cli._token(file, fresh=True)
    assert re.fullmatch("[0-9a-f]{32}", token)
    assert os.stat(file).st_mode & 0o777 == 0o600
    assert "A fresh token is in" in capsys.readouterr().err
    assert cli._token(file, fresh=True) == cli._token(file) == token
    assert capsys.readouterr().err == ""
    os.chmod(file, 0o644)
    assert cli._token(file) == token
    assert f"chmod 600 {file}" in capsys.readouterr().err


# A process for each


class Started:
    """A command, its errors line by line, and in the end its exit code, its output and all its errors."""

    def __init__(self, place, *arguments, program=MINIPS):
        found = str(Path(ps.__file__).parents[1])
        self.process = subprocess.Popen(
            [*program, *arguments],
            cwd=place,
            env={**os.environ, "PYTHONPATH": found},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def until(self, words):
        said = ""
        for line in self.process.stderr:
            said += line
            if words in line:
                return line
        raise AssertionError(said)

    def ended(self):
        out, error = self.process.communicate(timeout=WAIT_S)
        assert "Traceback" not in error, error
        return self.process.returncode, out, error

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.process.kill()
        self.process.communicate()


@contextlib.contextmanager
def served(place, *arguments):
    """A server by hand, and the words with which its workers are started."""
    with Started(place, "serve", "--data", "synthetic", "--token-file", "t", *arguments) as server:
        address = re.search("--connect (.*) --token", server.until("    minips work --"))[1]
        yield server, address, ["work", "--data", "synthetic", "--connect", address, "--token-file", "t"]


def test_the_commands_make_the_run_that_train_makes(tmp_path, papers):
    (tmp_path / "c.json").write_text(json.dumps(dataclasses.replace(TWO, transport="tcp").to_dict()))
    arguments = ["--config", "c.json", "--servers", "2", "--quantizer", "exact", "--json", "run.json"]
    secrecy = ["--certificate", papers["certificate"], "--key", papers["key"]]
    with served(tmp_path, *arguments, *secrecy) as (server, _, work):
        work += ["--authority", papers["authority"]]
        with Started(tmp_path, *work, "--rank", "1") as one, Started(tmp_path, *work, "--rank", "auto") as other:
            for started, rank in ((one, 1), (other, 0)):
                code, out, _ = started.ended()
                assert (code, out.startswith(f"Worker {rank}: the run is over, after 12 pushes;")) == (0, True)
        code, out, _ = server.ended()
    assert code == 0
    assert re.search(r"^updates +24$", out, re.MULTILINE)
    run = json.loads((tmp_path / "run.json").read_text())
    config = dataclasses.replace(TWO, push=ps.Codec())
    trained = ps.train(PROBLEM, config, engine="threads")
    assert [row[1:] for row in run["losses"]] == [[*row[1:]] for row in trained.losses]
    assert (run["validation_loss"], run["accuracy"]) == (trained.validation_loss, trained.accuracy)


def test_status_taken_ranks_and_ctrl_c(tmp_path, capsys):
    arguments = ["--workers", "2", "--steps", "1000000", "--json", "run.json"]
    with served(tmp_path, *arguments) as (server, address, work):
        token = str(tmp_path / "t")
        with Started(tmp_path, *work) as one, Started(tmp_path, *work) as other:
            for started in (one, other):
                started.until("is connected to")
            assert cli.main([*work[:-1], token, "--rank", "0"]) == 1
            assert "minips: Worker 0 is held by another session" in capsys.readouterr().err
            assert cli.main(["status", address, "--token-file", token]) == 0
            out = capsys.readouterr().out
            assert re.search(r"^server 0 of 1: \d+ of 2000000 updates in .* s, loss .*, running$", out, re.MULTILINE)
            assert re.search(r"^[\d.]+ pushes/s, [\d.]+ MB/s both ways$", out, re.MULTILINE)
            assert len(re.findall(r"^ +[01] +yes +\d+ +[\d.]+ s ago", out, re.MULTILINE)) == 2
            server.process.send_signal(signal.SIGINT)
            for started in (one, other):
                code, out, _ = started.ended()
                assert (code, "the run is over" in out) == (0, True)
        code, out, error = server.ended()
    assert code == 130
    updates = json.loads((tmp_path / "run.json").read_text())["updates"]
    assert updates > 0
    assert "(stopped)" in out
    assert error.strip().splitlines()[-2:] == [
        f"The run was stopped after {updates} of 2000000 updates.",
        "Stopped by Ctrl-C; everything that was started has ended.",
    ]


def test_a_worker_is_killed_started_again_and_stopped(tmp_path):
    arguments = ["--workers", "1", "--steps", "1000000", "--json", "run.json"]
    with served(tmp_path, *arguments) as (server, address, work):
        token = (tmp_path / "t").read_text().strip()

        def clock():
            return ps.status(address, token).workers[0].clock

        with Started(tmp_path, *work, "--rank", "0") as first:
            while clock() < 5:
                time.sleep(0.05)
            first.process.kill()
        before = clock()
        with Started(tmp_path, *work, "--rank", "0") as second:
            while clock() < before + 5:
                time.sleep(0.05)
            second.process.terminate()
            code, out, error = second.ended()
            assert (code, out) == (143, "")
            assert error.endswith("Stopped by SIGTERM; everything that was started has ended.\n")
        code, _, error = server.ended()
    assert code == 1
    run = json.loads((tmp_path / "run.json").read_text())
    assert run["stopped"]
    assert run["updates"] >= before + 5
    assert [text for _, text in run["events"]][-1] == "worker 0 has left: it was interrupted"


def test_a_goodbye_with_its_reason_arrives_whatever_a_signal_has_interrupted(monkeypatch):
    config = ps.Config(workers=1, steps=10, consistency="asp")
    with ps.Server({"w": np.zeros(3)}, config, updates=10).serve() as server:
        client = ps.connect(server.address, config, token=server.token)
        client.push({"w": np.ones(3)}).result(WAIT_S)
        wire = client._connections[0].channel._wire

        def sent(tag, frames, send=wire.send):
            send(tag, frames)
            raise KeyboardInterrupt

        monkeypatch.setattr(wire, "send", sent)
        with pytest.raises(KeyboardInterrupt):
            client.push({"w": np.ones(3)})
        client.close(failed="it was interrupted")
        run = server.wait(WAIT_S / 2)  # and not only after a silence
        assert [text for _, text in run.events] == ["worker 0 has left: it was interrupted"]
        assert not server.status().workers[0].connected
        with client._dials[0]() as channel, pytest.raises(ValueError, match="was worker 0, and has said goodbye"):
            client._carry_out(client.protocol.hello(0), channel)


def test_a_problem_of_ones_own_fails_in_a_sentence(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    (tmp_path / "mine_that_fails.py").write_text(
        "import minips as ps\n"
        "class Fails(ps.SoftmaxRegression):\n"
        "    def loss_and_gradient(self, params, rows=None):\n"
        "        raise ValueError('the third column is empty')\n"
        "def make():\n"
        "    return Fails(*ps.datasets.synthetic(classes=3))\n"
    )
    with served(tmp_path, "--workers", "1", "--problem", "mine_that_fails:make") as (server, _, work):
        assert cli.main([*work, "--problem", "mine_that_fails:make"]) == 1
        assert capsys.readouterr().err.splitlines()[-1] == "minips: the third column is empty"
        server.process.send_signal(signal.SIGTERM)
        code, out, error = server.ended()
    assert code == 143, error
    assert "worker 0 has left: ValueError: the third column is empty" in out
    assert "the held-out rows could not be evaluated: ValueError: the third column is empty" in " ".join(out.split())


def test_a_served_run_is_saved(tmp_path):
    with served(tmp_path, "--workers", "1", "--steps", "5", "--save", "run.npz") as (server, _, work):
        with Started(tmp_path, *work) as worker:
            assert worker.ended()[0] == 0
        code, _, error = server.ended()
    assert (code, "saved in run.npz" in error) == (0, True)
    trained = ps.train(PROBLEM, ps.Config(workers=1, steps=5), engine="threads")
    assert_same(ps.Run.load(tmp_path / "run.npz").params, trained.params)


def test_a_served_run_that_diverges_is_saved_and_exits_with_3(tmp_path):
    with served(tmp_path, "--workers", "1", "--steps", "20", "--optimizer", "sgd:lr=1e38", "--save", "run.npz") as (
        server,
        _,
        work,
    ):
        with Started(tmp_path, *work) as worker:
            code, _, error = worker.ended()
            assert (code, "The run has diverged" in error) == (3, True)
        code, out, error = server.ended()
    assert (code, out.startswith("diverged")) == (3, True)
    assert error.endswith("The run is saved in run.npz.\n")
    assert ps.Run.load(tmp_path / "run.npz").diverged
