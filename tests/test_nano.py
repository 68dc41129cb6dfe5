"""The parameter server in one file, and minips' own: servers and workers of both train together, to the same bits."""

import hashlib
import importlib.util
import io
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import tokenize
from ast import Assign, ClassDef, FunctionDef, Module, Tuple, get_docstring, parse, walk
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import psutil
import pytest

import minips as ps
from minips.drivers.connecting import status
from minips.engines.worker import compute

ROOT = Path(__file__).parents[1]
NANO = ROOT / "examples" / "nano.py"
WAIT_S = 60
PROBLEM = ps.SoftmaxRegression(*ps.datasets.digits())
CONFIGS = {
    "exact": ps.Config(),
    "sign": ps.Config(push=ps.Codec(quantizer=ps.Sign(), memory=ps.ErrorFeedback())),
}
OPTIONS = {
    "exact": [],
    "sign": ["--quantizer", "sign", "--memory", "errorfeedback"],
    "topk": ["--quantizer", "topk"],
    "two batches": ["--accumulate", "2"],
    "zlib": ["--pull-compressor", "zlib"],
}
WORKERS = {"nano": ["nano"] * 4, "minips": ["minips"] * 4, "both": ["nano", "minips", "nano", "minips"]}
REPORT = r"accuracy ([\d.]+), SHA-256 ([0-9a-f]{64})"


def digest(params):
    return hashlib.sha256(b"".join(params[name].tobytes() for name in sorted(params))).hexdigest()


def until(found, why):
    """What ``found()`` returns, once that is true."""
    deadline = time.monotonic() + WAIT_S
    while not (one := found()):
        assert time.monotonic() < deadline, why()
        time.sleep(0.01)
    return one


class Program:
    """A program under way, whose output goes to a file."""

    def __init__(self, command, folder, number):
        self.output = folder / f"program-{number}.txt"
        with self.output.open("wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, *map(str, command)],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )

    def said(self):
        return self.output.read_text()

    def until(self, pattern):
        """The match of a pattern in what it prints."""
        return until(lambda: re.search(pattern, self.said()), lambda: f"{pattern} is not in: {self.said()}")

    def ended(self, exit_status=0):
        """All that it has printed."""
        assert self.process.wait(WAIT_S) == exit_status, self.said()
        return self.said()


class Programs:
    """Programs in one folder, with one token."""

    def __init__(self, folder):
        self.folder, self.started = folder, []

    def start(self, *command):
        self.started.append(Program(command, self.folder, len(self.started)))
        return self.started[-1]

    @property
    def token(self):
        return (self.folder / "token").read_text().strip()

    def serve(self, whose, codec="exact", consistency="bsp"):
        """A server of four workers, and its address."""
        where = ["--bind", "tcp://127.0.0.1:0", "--token-file", "token", "--consistency", consistency]
        if whose == "nano":
            server = self.start(NANO, "serve", *where, "--codec", codec)
            return server, server.until(r"tcp://127\.0\.0\.1:\d+")[0]
        server = self.start("-m", "minips", "serve", *where, *OPTIONS[codec], "--save", "run.npz")
        return server, server.until(r"--connect (tcp://127\.0\.0\.1:\d+)")[1]

    def work(self, whose, address, token_file="token"):
        program = [NANO] if whose == "nano" else ["-m", "minips"]
        return self.start(*program, "work", "--connect", address, "--token-file", token_file)


@pytest.fixture
def programs(tmp_path):
    """Programs, all of which have ended after the test."""
    started = Programs(tmp_path)
    try:
        yield started
    finally:
        for one in started.started:
            one.process.kill()
        for one in started.started:
            one.process.wait(WAIT_S)


@pytest.fixture(scope="module")
def expected():
    """Of each codec, the digest of what minips trains, in virtual time."""
    return {codec: digest(ps.train(PROBLEM, config, engine="simulated").params) for codec, config in CONFIGS.items()}


# The file


def test_it_is_short():
    source = NANO.read_text()
    documented = [node for node in walk(parse(source)) if isinstance(node, Module | ClassDef | FunctionDef)]
    words = {
        line
        for node in documented
        if get_docstring(node)
        for line in range(node.body[0].lineno, node.body[0].end_lineno + 1)
    }
    nothing = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    code = {
        line
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type not in nothing
        for line in range(token.start[0], token.end[0] + 1)
    }
    assert source.count("\n") <= 420
    assert len(code - words) <= 310


def test_a_line_assigns_few_names():
    pairs = [
        (node.lineno, len(target.elts))
        for node in walk(parse(NANO.read_text()))
        if isinstance(node, Assign) and isinstance(node.value, Tuple)
        for target in node.targets
        if isinstance(target, Tuple)
    ]
    assert max(names for _, names in pairs) <= 3
    assert len({line for line, _ in pairs}) == len(pairs) <= 4


def test_minips_brings_the_data_alone():
    imported = re.findall(r"^(?:import|from) (\S+)", NANO.read_text(), re.MULTILINE)
    assert {name for name in imported if name.partition(".")[0] not in sys.stdlib_module_names} == {
        "numpy",
        "msgpack",
        "minips.datasets",
    }


# Whole runs, a process for each of those who take part


@pytest.mark.parametrize("codec", ["exact", pytest.param("sign", marks=pytest.mark.soak)])
def test_it_trains_by_itself_to_the_bits_of_minips(programs, codec, expected):
    reports = re.findall(REPORT, programs.start(NANO, "--codec", codec).ended())
    assert len(reports) == 5
    assert {found for _, found in reports} == {expected[codec]}
    assert min(float(accuracy) for accuracy, _ in reports) >= 0.95


@pytest.mark.soak
@pytest.mark.parametrize("codec", ["exact", pytest.param("sign", marks=pytest.mark.soak)])
def test_without_rounds_it_reads_the_digits_as_well(programs, codec):
    said = programs.start(NANO, "--codec", codec, "--consistency", "asp").ended()
    ((accuracy, _),) = re.findall("Server, after 800 of 800 pushes: " + REPORT, said)
    assert float(accuracy) >= 0.95


SHORT = {("nano", "both", "exact")}
RUNS = [
    pytest.param(*run, marks=[] if run in SHORT else pytest.mark.soak)
    for run in product(("nano", "minips"), WORKERS, CONFIGS)
]


@pytest.mark.parametrize(("server", "workers", "codec"), RUNS)
def test_servers_and_workers_of_both_train_to_the_same_bits(programs, server, workers, codec, expected):
    serving, address = programs.serve(server, codec)
    working = [programs.work(whose, address) for whose in WORKERS[workers]]
    for one, whose in zip(working, WORKERS[workers], strict=True):
        said = one.ended()
        if whose == "nano":
            assert re.findall("after 200 pushes: " + REPORT, said)[0][1] == expected[codec]
        else:
            assert "the run is over, after 200 pushes" in said
    said = serving.ended()
    if server == "nano":
        ((accuracy, found),) = re.findall("Server, after 800 of 800 pushes: " + REPORT, said)
    else:
        run = ps.Run.load(programs.folder / "run.npz")
        accuracy, found = run.accuracy, digest(run.params)
    assert found == expected[codec]
    assert float(accuracy) >= 0.95


@pytest.mark.soak
@pytest.mark.parametrize(("server", "codec"), [*product(("nano", "minips"), CONFIGS)])
def test_a_mixture_without_rounds_reads_the_digits_as_well(programs, server, codec):
    serving, address = programs.serve(server, codec, "asp")
    for one in [programs.work(whose, address) for whose in WORKERS["both"]]:
        one.ended()
    said = serving.ended()
    found = re.findall(REPORT, said)[0][0] if server == "nano" else re.search(r"accuracy +([\d.]+)", said)[1]
    assert float(found) >= 0.95


@pytest.mark.soak
@pytest.mark.parametrize("codec", CONFIGS)
def test_the_processes_of_minips_train_have_the_same_bits(programs, codec, expected):
    programs.start("-m", "minips", "train", *OPTIONS[codec], "--save", "run.npz").ended()
    assert digest(ps.Run.load(programs.folder / "run.npz").params) == expected[codec]


@pytest.mark.soak
def test_a_worker_that_is_killed_while_it_waits_is_noticed_and_another_takes_its_place(programs):
    server, address = programs.serve("nano")
    killed, *others = [programs.work("nano", address) for _ in range(3)]

    def seen():
        return status(address, programs.token)

    until(lambda: sum(one.connected for one in seen().workers) == 3, server.said)
    with ps.connect(address, worker=None, token=programs.token) as client:
        shard, params = PROBLEM.shard(client.worker, 4), client.pull().result(WAIT_S)

        def push():
            nonlocal params
            loss, gradients = compute(shard, client.config, params, client.worker, client.clock)
            params = client.push_pull(gradients, loss=loss).result(WAIT_S)

        for _ in range(20):
            push()
        until(lambda: [one.clock for one in seen().workers].count(21) == 3, lambda: str(seen()))
        killed.process.kill()  # its push is there, and it waits for the round, which wants this client's
        killed.ended(-9 if os.name == "posix" else 1)
        for _ in range(20):
            push()
        (lost,) = [one for one in seen().workers if not one.counts]
        assert not lost.connected
        assert 21 <= lost.clock <= 22  # what is still in the kernel's hands when it is killed counts
        others.append(programs.work("nano", address))
        until(lambda: all(one.connected for one in seen().workers), server.said)
        while not client.done:
            push()
    reports = [re.findall(REPORT, one.ended())[0] for one in (server, *others)]
    assert {found for _, found in reports} == {digest(params)}
    assert float(reports[0][0]) >= 0.95


@pytest.mark.parametrize(
    ("server", "worker"),
    [("nano", "minips"), ("minips", "nano"), pytest.param("nano", "nano", marks=pytest.mark.soak)],
)
def test_a_wrong_token_ends_in_a_sentence_and_the_server_goes_on(programs, server, worker):
    _, address = programs.serve(server)
    (programs.folder / "wrong").touch(0o600)
    (programs.folder / "wrong").write_text("another")
    said = programs.work(worker, address, "wrong").ended(1)
    assert "The server does not know this token" in said
    assert status(address, programs.token).applied == 0


@pytest.mark.parametrize("codec", ["topk", "zlib", pytest.param("two batches", marks=pytest.mark.soak)])
def test_a_config_that_wants_more_is_refused_in_a_sentence(programs, codec):
    _, address = programs.serve("minips", codec)
    assert re.search(r"Use minips( work)?\.", programs.work("nano", address).ended(1))
    assert not any(one.connected for one in status(address, programs.token).workers)


@pytest.mark.parametrize(
    "changes",
    [
        {"push.quantizer": {"b": "exact", "*": "sign"}},
        {"push.memory": "errorfeedback"},
        {"push.quantizer": "sign"},
        {"servers": 2},
        {"sampling": "epoch"},
        {"overlap": True},
        {"link": ps.Link()},
    ],
    ids=str,
)
def test_a_config_that_its_workers_cannot_follow_is_refused_before_they_say_hello(nano, changes):
    assert [nano.codec_of(config.public()) for config in CONFIGS.values()] == ["exact", "sign"]
    with pytest.raises(ValueError, match=r"Use minips work\."):
        nano.codec_of(ps.Config().with_(changes).public())


@pytest.mark.soak
def test_its_workers_end_with_the_process_that_has_started_them(programs):
    training = programs.start(NANO)
    parent = psutil.Process(training.process.pid)
    until(lambda: len(parent.children()) >= 4, training.said)
    children = parent.children()
    training.process.terminate()
    training.ended(-signal.SIGTERM if os.name == "posix" else 1)
    assert psutil.wait_procs(children, WAIT_S)[1] == []


def test_it_answers_minips_status(programs):
    _, address = programs.serve("nano")
    table = programs.start("-m", "minips", "status", address, "--token-file", "token").ended()
    assert "server 0 of 1: 0 of 800 updates" in table
    assert len(re.findall(r"^ +\d +no +0 +never ", table, re.MULTILINE)) == 4
    assert os.name != "posix" or (programs.folder / "token").stat().st_mode & 0o077 == 0


# The server, in this process


@pytest.fixture
def nano():
    """The file as a module, whose constants a test may change."""
    spec = importlib.util.spec_from_file_location("nano", NANO)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.WORKERS, module.STEPS = 2, 3
    return module


@pytest.fixture
def served(nano):
    """``served(consistency)``: the address of a server in a thread, and its shard."""
    ended = []

    @contextmanager
    def serving(consistency="bsp"):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            shard = nano.Shard("exact", consistency)
            thread = threading.Thread(target=nano.serve, args=(listener, b"token", shard))
            thread.start()
            try:
                yield listener.getsockname(), shard
            finally:
                with shard.changed:
                    shard.diverged = shard.diverged or "The test is over."
                    shard.update()
                thread.join(WAIT_S)
                ended.append(not thread.is_alive())

    yield serving
    assert ended == [True]


@contextmanager
def connected(nano, address, worker=None):
    """``call(kind, gradients, **header)`` over a connection, after a hello as this worker, if one is given."""
    with socket.create_connection(address, WAIT_S) as sock, sock.makefile("rwb") as stream:
        nano.prove(stream, b"token")

        def call(kind, gradients=None, **header):
            packet = nano.pack(gradients, "exact", {}) if gradients else []
            return nano.ask(stream, kind, packet, **{"worker": worker, **header})[0]

        if worker is not None:
            call("hello")
        yield call


def push(call, clock, value=1.0, kind="push"):
    gradients = {"W": np.full((64, 10), value, "f4"), "b": np.full(10, value, "f4")}
    return call(kind, gradients, clock=clock, version=0, loss=0.5)


def test_a_push_counts_once(nano, served):
    with served() as (address, shard), connected(nano, address, 0) as one, connected(nano, address, 1) as two:
        assert [push(one, 0)["outcome"], push(one, 0)["outcome"]] == ["held", "duplicate"]
        assert push(two, 0)["outcome"] == "applied"
        assert push(two, 0)["clock"] == 1
        assert (shard.version, shard.applied, shard.duplicates) == (1, 2, 2)
        np.testing.assert_array_equal(shard.params["b"], np.full(10, np.float32(-0.1)))


def test_a_push_of_the_next_clock_waits_until_its_round_is_whole(nano, served):
    with served() as (address, shard), connected(nano, address, 0) as one, connected(nano, address, 1) as two:
        push(one, 0)
        with ThreadPoolExecutor(1) as threads:
            early = threads.submit(push, one, 1)
            assert two("status")["applied"] == 0
            assert shard.clocks == [1, 0]
            assert push(two, 0)["outcome"] == "applied"
            assert early.result(WAIT_S)["outcome"] == "held"
        assert (shard.version, shard.clocks, [*shard.held]) == (1, [2, 1], [0])
        assert [row["waits_for"] for row in two("status")["workers"]] == [[1], []]


def test_a_wait_has_a_bound(nano, served):
    nano.TIMEOUT_S = 0.1
    with served() as (address, shard), connected(nano, address, 0) as one:
        with pytest.raises(RuntimeError, match=r"TimeoutError: Worker 0 waited 0.1 s for \{1\}"):
            push(one, 0, kind="push_pull")
        assert shard.held.keys() == {0}


def test_a_worker_that_falls_silent_no_longer_counts_and_one_that_says_alive_does(nano, served):
    nano.SILENCE_S = 0.4
    with (
        served() as (address, shard),
        connected(nano, address, 0),
        ps.connect("tcp://{}:{}".format(*address), worker=1, token="token") as client,
    ):
        until(lambda: shard.live == {1}, lambda: shard.live)
        time.sleep(2 * nano.SILENCE_S)  # in which the client says alive, over the first connection of its pool
        assert shard.live == {1}
        gradients = {name: np.ones_like(p) for name, p in client.pull().result(WAIT_S).items()}
        assert client.push(gradients).result(WAIT_S) == "applied"


@pytest.mark.parametrize(
    ("gradients", "clock", "words"),
    [
        ({"W": np.full((64, 10), np.nan, "f4"), "b": np.zeros(10, "f4")}, 0, "finite"),
        ({"W": np.zeros((10, 64), "f4"), "b": np.zeros(10, "f4")}, 0, r"got push 0 of .*\(10, 64\)"),
        ({"b": np.zeros(10, "f4")}, 0, "got push 0 of {'b'"),
        ({"W": np.zeros((64, 10)), "b": np.zeros(10)}, 0, "float64"),
        ({"W": np.zeros((64, 10), "f4"), "b": np.zeros(10, "f4")}, 1, "Expected push 0, .*; got push 1"),
    ],
    ids=["not finite", "shape", "names", "dtype", "clock"],
)
def test_what_is_no_push_is_refused_and_changes_nothing(nano, served, gradients, clock, words):
    with served("asp") as (address, shard), connected(nano, address, 0) as one:
        with pytest.raises(RuntimeError, match=f"ValueError: .*{words}"):
            one("push", gradients, clock=clock, version=0, loss=0.5)
        assert (shard.version, shard.clocks) == (0, [0, 0])
        assert push(one, 0)["outcome"] == "applied"


@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_an_update_that_is_not_finite_ends_the_run_and_is_not_made(nano, served):
    nano.LR = 1e30
    with served("asp") as (address, shard), connected(nano, address, 0) as one:
        told = push(one, 0, 1e30)
        assert (told["outcome"], told["done"]) == ("over", True)
        assert not shard.params["b"].any()
        assert "NaN or infinite" in one("status")["diverged"]


def test_a_worker_that_has_diverged_ends_the_run(nano, served):
    with served() as (address, shard), connected(nano, address) as asking:  # without any connection the server ends
        with connected(nano, address, 0) as one:
            one("bye", diverged="The loss is NaN.")
        until(lambda: shard.done, lambda: shard.diverged)
        assert asking("status")["diverged"] == "The loss is NaN."


@pytest.mark.parametrize(
    ("kind", "header", "words"),
    [
        ("state", {}, "ValueError: Expected status or, as one worker, of hello"),
        ("pull", {}, "ValueError: Expected status or, as one worker, of hello"),
        ("hello", {}, "ValueError: Worker 0 .* is held by another session"),
        ("hello", {"secret": "ab" * 16}, "ValueError: Worker 0 .* is held by another session"),
        ("push", {"clock": 0}, "ValueError: Expected status or, as one worker, of hello"),
    ],
)
def test_words_that_it_does_not_take_are_refused_in_a_sentence(nano, served, kind, header, words):
    with (
        served() as (address, _),
        connected(nano, address, 0) as one,
        socket.create_connection(address, WAIT_S) as sock,
        sock.makefile("rwb") as stream,
    ):
        nano.prove(stream, b"token")
        with pytest.raises(RuntimeError, match=words):
            nano.ask(stream, kind, worker=0, **header)
        assert nano.ask(stream, "status")[0]["workers"][0]["connected"]
        assert one("alive")["clock"] == 0


@pytest.mark.parametrize("kind", ["push", "pull", "push_pull", "alive", "bye", "hello"])
def test_a_connection_speaks_as_its_own_worker_alone(nano, served, kind):
    with served("asp") as (address, shard), connected(nano, address, 0) as one, connected(nano, address, 1) as two:
        with pytest.raises(RuntimeError, match=r"as one worker|is held by another session"):
            two(kind, clock=0, loss=0.0, worker=0)
        assert (shard.clocks, shard.live, shard.diverged) == ([0, 0], {0, 1}, "")
        assert push(one, 0)["outcome"] == "applied"


def test_who_knows_the_secret_is_let_in_beside_its_first_connection(nano, served):
    with served("asp") as (address, shard), connected(nano, address, 0) as one, connected(nano, address) as again:
        secret = one("hello")["secret"]
        assert re.fullmatch("[0-9a-f]{32}", secret)
        push(one, 0)
        told = again("hello", worker=0, secret=secret)
        assert (told["secret"], told["clock"]) == (secret, 1)
        assert push(partial(again, worker=0), 1)["outcome"] == "applied"
        with pytest.raises(RuntimeError, match="is held by another session"):
            again("hello", worker=1)
        assert shard.secrets == [secret, ""]


def test_a_peer_that_proves_nothing_is_hung_up_on(nano, served):
    nano.PROOF_S = 0.2
    with served() as (address, shard), socket.create_connection(address, WAIT_S) as sock:
        with sock.makefile("rwb") as stream:
            assert nano.receive(stream)[1][0] == b"minips/1"
            assert stream.read() == b""
        assert shard.connections == {}
