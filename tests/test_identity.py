"""Who is who: a rank is held by one session, and nobody else speaks as that worker, over whatever transport."""

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
from contextlib import ExitStack

import numpy as np
import pytest
from tap import Tap
from test_byhand import Started, served
from test_server import LOCAL, ONES, START, WAIT_S, Raw, serve, waits_for_worker_1

import minips as ps
from minips import cli
from minips.drivers.client import Client
from minips.drivers.connecting import asking
from minips.engines import roles
from minips.stages.transports import Connection, Service
from minips.stages.transports.certificates import files, issue_certificate

TRANSPORTS = ["tcp", "shm", "http", "zmq", "grpc"]
NETWORKS = ["tcp", "http", "zmq", "grpc", "pyro", "thrift"]
WRONG = ["0" * 32, "", "a", "A" * 32, "a" * 33, 7, True, ["a" * 32], {"a": 1}, b"a" * 32, 1.5]
PUSH = {"clock": 0, "version": 0, "loss": 0.5}
MATRIX = {"w": np.zeros((4, 3)), "b": np.array(1.0)}
AS_ANOTHER = [
    ("push", PUSH),
    ("push_pull", PUSH),
    ("push", {**PUSH, "clock": 1}),
    ("pull", {}),
    ("pull", {"names": ["b"]}),
    ("pull", {"rows": {"w": [1]}}),
    ("alive", {}),
    ("state", {}),
    ("bye", {}),
    ("bye", {"diverged": "Nothing is finite."}),
    ("bye", {"failed": "I am somebody else."}),
    ("hello", {}),
    ("hello", {"again": True, "rows": 9.0}),
]
"""What is said as worker 0 by who is not worker 0."""
everywhere = pytest.mark.parametrize("name", TRANSPORTS)


def over(name, **changes):
    return dataclasses.replace(LOCAL, transport=name, **changes)


def standing(server):
    """All that a request could change."""
    shard, members = server.shard, server._members
    rows = [
        (one.rows, one.received, one.sent, one.secret, one.state, one.leaves, len(one.connections)) for one in members
    ]
    params = {name: x.tobytes() for name, x in server.params.items()}
    return shard.version, shard.applied, shard.clocks[:], {*shard.live}, shard.diverged, rows, params, server.events[:]


def refusal(raw, kind, worker=0, **header):
    """The one sentence by which this is refused."""
    tensors = {name: np.ones_like(x) for name, x in MATRIX.items()} if "push" in kind else {}
    with pytest.raises(ValueError, match=r"\.$") as caught:
        raw.send(raw.frames(kind, tensors, **{**header, "worker": worker}))
    said = str(caught.value)
    assert re.fullmatch(r"(Worker 0|This connection|A session's secret|The header of hello) [^\n]{20,450}\.", said), (
        said
    )
    assert not re.search(r"[0-9a-f]{32}|Error|object", said), said
    return said


@contextlib.contextmanager
def held(name, **options):
    """A server whose worker 0 is here, with a clock, and its owner; another worker's connection, and one of nobody."""
    config = over(name)
    with (
        serve(config, MATRIX, **options) as server,
        Raw(server) as owner,
        Raw(server, worker=1) as other,
        Raw(server) as nobody,
    ):
        owner.hello()
        other.hello()
        yield server, owner, other, nobody


# Over a connection that is not of the session


@everywhere
def test_nobody_speaks_as_another_worker(name):
    gradients = {name: np.ones_like(x) for name, x in MATRIX.items()}
    with held(name) as (server, owner, other, nobody):
        before = standing(server)
        for kind, header in AS_ANOTHER:
            for raw in (nobody, other):
                refusal(raw, kind, **header)
                assert standing(server) == before, (kind, raw is other)
        assert owner.push(gradients).header["outcome"] == "applied"
        assert other.push(gradients).header["clock"] == 1
        assert owner.push(gradients, clock=1).header["outcome"] == "applied"


@everywhere
def test_a_hello_with_a_wrong_secret_or_none_is_refused(name):
    with held(name) as (server, owner, other, nobody):
        before = standing(server)
        for secret in WRONG:
            for raw in (nobody, other, owner):
                refusal(raw, "hello", secret=secret)
                refusal(raw, "hello", secret=secret, again=True)
        refusal(nobody, "hello", secret=other.secret)
        refusal(nobody, "hello", secret=None)
        assert standing(server) == before
        assert owner.hello().header["secret"] == owner.secret, "over its own connection it needs none"
        assert nobody.hello(owner.secret, again=True).header["secret"] == owner.secret
        assert nobody.push({name: np.ones_like(x) for name, x in MATRIX.items()}).header["outcome"] == "applied"


@everywhere
def test_anothers_waiting_call_and_clock_stay_its_own(name):
    config = over(name, consistency="bsp")
    with (
        serve(config) as server,
        ps.connect(server.address, config, token=server.token) as client,
        Raw(server, worker=1) as other,
        Raw(server, worker=1) as nobody,
    ):
        other.hello()
        waiting = waits_for_worker_1(client)
        while not server.status().workers[0].waits_for:
            time.sleep(0.01)
        before = standing(server)
        for kind in ("push", "bye", "hello", "alive"):
            said = PUSH if kind == "push" else {}
            with pytest.raises(ValueError, match=r"[wW]orker 1"):
                nobody.send(nobody.frames(kind, ONES if kind == "push" else None, **said))
            with pytest.raises(ValueError, match=r"[wW]orker 0"):
                other.send(other.frames(kind, ONES if kind == "push" else None, **{**said, "worker": 0}))
        time.sleep(0.05)
        assert not waiting.done()
        assert standing(server) == before
        other.push()
        assert waiting.result(WAIT_S)["b"] == 0


def test_a_connection_is_one_workers_at_a_time():
    with serve() as server, Raw(server) as raw:
        raw.hello()
        with pytest.raises(ValueError, match=r"This connection is worker 0's\. Say hello as worker 1 over another one"):
            raw.say("hello", worker=1)
        assert not server._members[1].connections
        raw.say("bye")
        with pytest.raises(ValueError, match="no longer that of worker 0"):
            raw.send(raw.frames("alive"))
        raw.worker = 1
        raw.hello()
        assert server._members[1].connections


def test_status_is_for_all_who_have_the_token_and_names_no_secret():
    with held("tcp") as (server, owner, other, nobody):
        told = nobody.say("status", config=True).header
        assert [row["connected"] for row in told["workers"]] == [True, True]
        for raw in (owner, other):
            assert raw.secret not in repr(told)
        assert server.token not in repr(told)


# The owner


@everywhere
def test_the_owner_is_let_in_at_once_over_a_new_connection(name):
    config = over(name)
    with serve(config, rejoin_s=WAIT_S) as server, ps.connect(server.address, config, token=server.token) as client:
        for clock in range(3):
            client.push(ONES).result(WAIT_S)
            client._connections[0]._connected.close()
            assert client.push(ONES).result(WAIT_S / 2) == "applied"
            assert client.clock == 2 * clock + 2
        assert (server.shard.applied, server.events) == (6, [])


@everywhere
def test_a_rank_whose_connection_broke_is_kept_and_then_free(name):
    with serve(over(name), rejoin_s=1.5) as server, Raw(server) as stranger:
        with Raw(server) as raw:
            raw.push()
        while server._members[0].connections:
            time.sleep(0.01)
        refusal(stranger, "hello")
        with Raw(server, worker=-1) as another:
            assert another.hello().header["worker"] == 1
        until = time.monotonic() + WAIT_S
        while stranger.greeted is None:
            assert time.monotonic() < until
            with contextlib.suppress(ValueError):
                stranger.hello()
        assert stranger.secret != raw.secret
        assert 0 in server.shard.live
        with Raw(server) as late, pytest.raises(ValueError, match="held by another session"):
            late.hello(raw.secret, again=True)


def lost(server, worker=0):
    """Let a worker come, and its connection break. Returns when the server noticed that."""
    with Raw(server, worker=worker) as raw:
        raw.hello()
    while server._members[worker].connections:
        time.sleep(0.001)
    return server._members[worker].lost_at


@everywhere
@pytest.mark.parametrize("rank", [0, -1])
def test_a_process_that_is_started_again_at_once_waits_for_its_rank(name, rank):
    with (
        serve(over(name), rejoin_s=0.2) as server,
        Raw(server, worker=rank) as fresh,
        Raw(server, worker=1) as other,
    ):
        other.hello()
        lost_at = lost(server)
        answer = fresh.hello().header
        assert server.shard.now() - lost_at >= 0.2
        assert (answer.get("worker", 0), len(server._members[0].connections)) == (0, 1)


def test_the_first_free_rank_may_be_waited_for_beside_a_silent_worker():
    with (
        serve(over("tcp"), rejoin_s=0.4, silence_s=0.4) as server,
        Raw(server, worker=-1) as fresh,
        Raw(server, worker=1) as silent,
    ):
        silent.hello()
        while 1 in server.shard.live:
            time.sleep(0.01)
        lost_at = lost(server)
        assert fresh.hello().header["worker"] == 0
        assert server.shard.now() - lost_at >= 0.4


@pytest.mark.parametrize("rank", [0, -1])
def test_a_hello_that_waits_for_longer_than_the_config_lets_it_is_refused(rank, monkeypatch):
    monkeypatch.setattr("minips.core.membership.SOON_S", WAIT_S)
    with (
        serve(over("tcp", timeout_s=0.1), rejoin_s=WAIT_S / 2) as server,
        Raw(server) as fresh,
        Raw(server, worker=1) as other,
    ):
        other.hello()
        lost_at = lost(server)
        with pytest.raises(ValueError, match=r"Worker 0 is held by another session|All 2 workers are connected"):
            fresh.send(fresh.frames("hello", worker=rank))
        assert server.shard.now() - lost_at >= 0.1


@everywhere
def test_an_owner_that_returns_keeps_its_rank_before_a_hello_that_waits(name, monkeypatch):
    monkeypatch.setattr("minips.core.membership.SOON_S", WAIT_S)
    with serve(over(name), rejoin_s=WAIT_S / 2) as server, Raw(server) as fresh:
        lost(server)
        waiting = fresh.channel.call(fresh.frames("hello"))
        with Raw(server) as again:
            again.hello(server._members[0].secret, again=True)
            with pytest.raises(ValueError, match="Worker 0 is held by another session"):
                waiting.result(WAIT_S)


@everywhere
def test_a_hello_that_waits_and_is_gone_takes_no_rank(name):
    with serve(over(name), rejoin_s=0.2) as server:
        lost_at = lost(server)
        with Raw(server) as fresh:
            fresh.channel.call(fresh.frames("hello"))
            time.sleep(0.05)
        while server.shard.now() - lost_at < 0.4:
            time.sleep(0.01)
        with Raw(server) as another:
            another.hello()


def test_a_push_that_waits_is_not_that_of_the_session_which_has_the_rank_next():
    config = over("inproc", consistency="bsp")
    with serve(config) as server, Raw(server) as gone, Raw(server) as fresh, Raw(server, worker=1) as other:
        other.hello()
        gone.push()
        waiting = gone.channel.call(gone.frames("push", ONES, clock=1, version=0))
        while not server.status().workers[0].waits_for:
            time.sleep(0.01)
        (connection,) = server._members[0].connections
        server._connection_closed(connection)  # some transports notice that while a call waits
        fresh.hello()
        assert other.push().header["outcome"] == "applied"
        with pytest.raises(ValueError, match="Another session has become worker 0 while this push of it waited"):
            waiting.result(WAIT_S)
        assert server.shard.clocks == [1, 1]
        assert fresh.push(clock=1).header["outcome"] == "held"


def test_a_second_break_begins_the_time_anew():
    with serve(over("tcp"), rejoin_s=0.6) as server:
        with Raw(server) as raw:
            raw.hello()
        time.sleep(0.4)
        with Raw(server) as again:
            again.hello(raw.secret, again=True)
        time.sleep(0.4)
        assert (0 in server.shard.live, server.events) == (True, [])


def test_an_owner_that_comes_late_has_its_rank_again_where_nobody_took_it():
    with serve(over("tcp")) as server:
        with Raw(server) as raw:
            raw.push()
        while 0 in server.shard.live:
            time.sleep(0.01)
        with Raw(server) as again:
            answer = again.hello(raw.secret, again=True)
            assert (answer.header["secret"], answer.header["clock"]) == (raw.secret, 1)
        with serve(over("tcp")) as fresh, Raw(fresh) as again:  # a server that was itself started again
            assert again.hello(raw.secret, again=True).header["secret"] == raw.secret


class Cutting(Connection):
    """Passes calls on to a server, and cuts the first connection before the answer to hello."""

    def __init__(self, server, endpoints, cut):
        self.channel = ps.Tcp(pool=1).connect(server.address, server.token)
        self.endpoints, self.cut = endpoints, cut

    def answer(self, frames):
        answer = self.channel.call(frames).result(WAIT_S)
        if self.cut and any(b"hello" in bytes(frame) for frame in frames):
            self.channel.close()
            self.endpoints[0]._wires[threading.current_thread()].shutdown()
        return answer

    def closed(self):
        self.channel.close()


def answering_late(server, stack):
    """The address of a service that passes requests on to a server, but cuts the first connection behind a hello."""
    endpoints, opened = [], []

    def connection():
        opened.append(True)
        return Cutting(server, endpoints, cut=len(opened) == 1)

    endpoints.append(stack.enter_context(ps.Tcp(pool=1).serve(Service(connection), None, "t")))
    return endpoints[0].address, opened


def test_a_client_whose_first_hello_was_never_answered_is_known_by_its_secret():
    config = over(ps.Tcp(pool=1))
    with serve(config, rejoin_s=1000.0) as server, ExitStack() as stack:
        address, opened = answering_late(server, stack)
        with ps.connect(address, config, token="t") as client:
            assert client.push(ONES).result(WAIT_S) == "applied"
        assert len(opened) == 2


@pytest.mark.parametrize("how", ["secrets", "session"])
def test_a_session_that_connects_again_is_the_first_free_worker_that_it_was(how, tmp_path):
    config, mine = over(ps.Tcp(pool=1)), {"secrets": ["5" * 32], "session": tmp_path / "session"}[how]
    with serve(config, rejoin_s=1000.0) as server, ExitStack() as stack:
        address, _ = answering_late(server, stack)
        with pytest.raises(ConnectionError):
            ps.connect(address, config, worker=None, token="t", **{how: mine})
        with ps.connect(address, config, worker=None, token="t", **{how: mine}) as client:
            assert client.worker == 0
            assert client.push(ONES).result(WAIT_S) == "applied"
    with pytest.raises(ValueError, match=r"one for each of 1 servers; got 2|A session's secret is the 32 hex"):
        ps.connect(address, config, token="t", secrets=["5" * 32, "5" * 32] if how == "secrets" else ["5"])


def test_a_session_that_was_refused_may_ask_for_another_number(tmp_path):
    config, file = over("tcp"), tmp_path / "session"
    with serve(config) as server, ps.connect(server.address, config, token=server.token):
        with pytest.raises(ValueError, match="Worker 0 is held by another session"):
            ps.connect(server.address, config, token=server.token, session=file)
        with ps.connect(server.address, config, worker=1, token=server.token, session=file) as client:
            assert client.worker == 1


def test_a_client_without_a_secret_whose_first_hello_was_never_answered_has_the_rank_once_it_is_free_again():
    config = over(ps.Tcp(pool=1))
    with serve(config, rejoin_s=0.8) as server, ExitStack() as stack:
        address, opened = answering_late(server, stack)
        with Client([address], config, 0, "t") as client:
            assert client.push(ONES).result(WAIT_S) == "applied"
        assert len(opened) > 2, "it was refused at first"


def test_attempts_to_connect_again_outlast_the_time_for_which_a_rank_is_kept():
    for rejoin_s in (0.25, 1.0, 7.0, 1000.0):
        with serve(rejoin_s=rejoin_s) as server:
            with ps.connect(server.address, LOCAL, token=server.token) as client:
                pauses = client._connections[0].resending.pauses_s
                assert rejoin_s < sum(pauses) < 2 * rejoin_s + 1.5
                assert tuple(pauses[:4]) == (0.0, 0.1, 0.3, 0.9)
            with ps.connect(server.address, LOCAL, token=server.token, pauses_s=(0.1,)) as client:
                assert client._connections[0].resending.pauses_s == (0.1,)
    for wrong in (0, -1.0, "1", float("nan")):
        with pytest.raises(ValueError, match="rejoin_s takes seconds above 0"):
            serve(rejoin_s=wrong)


# Ranks that are assigned before anybody comes


SECRETS = ["a" * 32, "b" * 32]


def test_a_rank_with_a_secret_is_kept_for_who_knows_it():
    with serve(rank_secrets=SECRETS) as server, Raw(server) as stranger:
        assert "which has not come yet" in refusal(stranger, "hello")
        with Raw(server, worker=-1) as any_one, pytest.raises(ValueError, match="All 2 workers are connected already"):
            any_one.hello()
        for _ in range(2):  # a fresh process that knows it, too, at once
            with Client([server.address], LOCAL, 0, server.token, secrets=[SECRETS[0]]) as client:
                assert client.push(ONES).result(WAIT_S) == "applied"
        with Raw(server, worker=-1) as mine:
            assert mine.hello(SECRETS[1]).header["worker"] == 1
    for wrong in (["a" * 32], SECRETS * 2, ["a" * 32, "b"], ["a" * 32, 7]):
        with pytest.raises(ValueError, match=r"one for each of 2 workers|A session's secret is"):
            serve(rank_secrets=wrong)


@pytest.mark.parametrize("engine", ["threads", "simulated"])
def test_an_engine_draws_a_secret_for_each_rank_and_nothing_keeps_it(engine, monkeypatch, tmp_path):
    drawn, tokens, told = [], [], {}

    class Noted(roles.Server):
        def __init__(self, *arguments, rank_secrets=(), **options):
            drawn.extend(rank_secrets)
            super().__init__(*arguments, rank_secrets=rank_secrets, **options)

        def serve(self, address=None, token=None, **options):
            tokens.append(token)
            super().serve(address, token, **options)
            with Raw(self, worker=1) as raw:
                told["stranger"] = refusal(raw, "hello", worker=0)
                told["server"] = repr(self) + repr(self.status())
            return self

    monkeypatch.setattr(roles, "Server", Noted)
    problem = ps.SoftmaxRegression(*ps.datasets.synthetic(rows=40, features=3, classes=2))
    run = ps.train(problem, ps.Config(workers=3, steps=2), engine=engine)
    if engine == "threads":
        assert len({*drawn}) == 3
        assert "has not come yet" in told["stranger"]
    run.save(tmp_path / "run.npz")
    with np.load(tmp_path / "run.npz", allow_pickle=False) as kept:
        saved = repr({name: kept[name].tobytes() if kept[name].dtype == "u1" else kept[name] for name in kept})
    texts = [repr(run), run.summary(), saved, repr(run.to_dict()), repr([*run.trace]), repr(run.events), repr(told)]
    for secret in [*drawn, *tokens]:
        assert not any(secret in text for text in texts)


def test_no_repr_and_no_refusal_tells_a_token_or_a_secret():
    with serve(over("tcp")) as server, ps.connect(server.address, over("tcp"), token=server.token) as client:
        texts = [repr(one) for one in (server, client, client.protocol, client._servers[0], server._protocol)]
        texts += [repr(vars(client.report()["trace"])), repr(server.report()), repr(client.refs())]
        with pytest.raises(PermissionError) as caught:
            ps.connect(server.address, over("tcp"), token=server.token + "x")
        texts.append(str(caught.value))
        (secret,) = [one.secret for one in client.protocol.servers]
        assert re.fullmatch("[0-9a-f]{32}", secret)
        assert not any(hidden in text for text in texts for hidden in (server.token, secret))


# A session's file


CRASHES = """
import os, sys
import numpy as np
import minips as ps

if __name__ == "__main__":
    config = ps.Config(transport="tcp", consistency="asp", workers=2, optimizer=ps.SGD(lr=1.0))
    client = ps.connect(sys.argv[1], config, worker=None, token=os.environ["MINIPS_TOKEN"], session=sys.argv[2])
    client.push({"w": np.ones(3), "b": np.array(1.0)}).result(20)
    print(client.worker, client.clock, flush=True)
    os._exit(9)
"""


def test_a_process_that_is_started_again_with_its_session_is_the_same_worker(tmp_path):
    config, file = over("tcp"), tmp_path / "session.json"
    with serve(config, rejoin_s=60.0) as server:
        environment = {**os.environ, "MINIPS_TOKEN": server.token}
        for clock in (1, 2):
            done = subprocess.run(
                [sys.executable, "-c", CRASHES, server.address, str(file)],
                env=environment,
                capture_output=True,
                text=True,
                timeout=60,
            )
            assert (done.returncode, done.stdout) == (9, f"0 {clock}\n"), done.stderr
            with Raw(server) as stranger:
                refusal(stranger, "hello")
        assert os.stat(file).st_mode & 0o777 == 0o600
        kept = json.loads(file.read_text())
        assert (kept["worker"], kept["secrets"]) == (0, [server._members[0].secret])
        assert (server.shard.applied, server.events) == (2, [])


def test_a_session_of_several_servers_has_a_secret_for_each(tmp_path):
    config, file = dataclasses.replace(over("inproc"), servers=2), tmp_path / "session"
    with serve(config, index=0) as one, serve(config, index=1) as two:
        addresses = [one.address, two.address]
        two._endpoint.close()
        two.serve(token=one.token)
        addresses = [one.address, two.address]
        for _ in range(2):
            with ps.connect(addresses, config, worker=1, token=one.token, session=file) as client:
                client.push(ONES).result(WAIT_S)
        kept = json.loads(file.read_text())
        assert kept == {"worker": 1, "secrets": [one._members[1].secret, two._members[1].secret]}
        assert len({*kept["secrets"]}) == 2
        for worker, wanted in ((0, addresses), (None, addresses[:1])):
            with pytest.raises(ValueError, match="is not a session file of"):
                ps.connect(wanted, config, worker=worker, token=one.token, session=file)


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", "7", '{"worker": 0}', '{"worker": "0", "secrets": ["a"]}', '{"worker": 0, "secrets": 3}', "\xff"],
)
def test_what_is_no_session_file_is_refused_before_anything_is_asked(text, tmp_path):
    file = tmp_path / "session"
    file.write_bytes(text.encode("latin-1"))
    file.chmod(0o600)
    with pytest.raises(ValueError, match=r"not a session file of worker 0 and 1 servers\. Name another, or delete it"):
        ps.connect("tcp://127.0.0.1:9", LOCAL, token="t", session=file)


def test_a_session_file_that_others_can_read_or_that_is_none_is_refused(tmp_path):
    file = tmp_path / "session"
    file.write_text('{"worker": 0, "secrets": ["' + "a" * 32 + '"]}')
    file.chmod(0o640)
    with pytest.raises(ValueError, match=r"can be read by others than its owner\. Use: chmod 600"):
        ps.connect("tcp://127.0.0.1:9", LOCAL, token="t", session=file)
    with pytest.raises(TypeError, match="session names the file"):
        ps.connect("tcp://127.0.0.1:9", LOCAL, token="t", session=5)
    with serve() as server:
        with pytest.raises(OSError, match="nowhere"):
            ps.connect(server.address, LOCAL, token=server.token, session=tmp_path / "nowhere" / "session")
        assert not server.connected


@pytest.mark.soak
def test_workers_started_again_by_hand_take_their_own_numbers(tmp_path):
    with served(tmp_path, "--workers", "2", "--steps", "1000000", "--consistency", "asp") as (server, _, work):
        with Started(tmp_path, *work, "--session", "one") as one:
            one.until("Worker 0 of 2 is connected")
            with Started(tmp_path, *work, "--session", "two") as two:
                two.until("Worker 1 of 2 is connected")
                two.process.kill()
            one.process.kill()
        with Started(tmp_path, *work, "--session", "two") as two:
            two.until("Worker 1 of 2 is connected")
            with Started(tmp_path, *work, "--session", "one") as one:
                one.until("Worker 0 of 2 is connected")
                server.process.send_signal(signal.SIGINT)
                assert [started.ended()[0] for started in (one, two)] == [0, 0]
        server.ended()
    assert [os.stat(tmp_path / name).st_mode & 0o777 for name in ("one", "two")] == [0o600] * 2


# Tokens, and plain connections


def test_an_empty_token_or_one_that_is_no_text_is_refused_everywhere():
    problem = ps.SoftmaxRegression(*ps.datasets.synthetic(rows=20, features=3, classes=2))
    for token, error in (("", ValueError), (None, TypeError), (b"t", TypeError), (7, TypeError), (["t"], TypeError)):
        for use in (
            lambda token: ps.Server(START, LOCAL).serve(token=0 if token is None else token),  # None: a fresh one
            lambda token: ps.connect("tcp://127.0.0.1:9", LOCAL, token=token),
            lambda token: ps.status("tcp://127.0.0.1:9", token),
            lambda token: ps.work(problem, "tcp://127.0.0.1:9", token=token),
        ):
            with pytest.raises(error, match="A token is a text that is not empty"):
                use(token)


def test_the_commands_take_the_token_from_a_file_or_a_variable(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MINIPS_TOKEN", raising=False)
    for arguments in ("serve --data synthetic", "work --connect tcp://127.0.0.1:9", "status tcp://127.0.0.1:9"):
        assert cli.main(arguments.split()) == 2
        assert "Name a file with --token-file, or set the variable MINIPS_TOKEN." in capsys.readouterr().err
    with serve(over("tcp")) as server:
        monkeypatch.setenv("MINIPS_TOKEN", server.token)
        assert cli.main(["status", server.address]) == 0
        out, err = capsys.readouterr()
        assert "server 0 of 1" in out
        assert server.token not in out + err
        (tmp_path / "t").write_text("another")
        (tmp_path / "t").chmod(0o600)
        assert cli.main(["status", server.address, "--token-file", "t"]) == 1, "the file goes before the variable"


@pytest.mark.parametrize("name", NETWORKS)
def test_a_public_address_without_tls_is_refused_unless_it_is_wanted(name, caplog):
    transport = ps.build("transport", name)
    config, public = over(name), f"{transport.scheme}://0.0.0.0:0"
    with pytest.raises(ValueError, match=r"there is no TLS.*or plaintext=True"):
        ps.Server(START, config).serve(public)
    assert not caplog.records
    with ps.Server(START, config).serve(public, private=True) as server:
        assert (server.events, caplog.records) == ([], [])
    with ps.Server(START, config, updates=1).serve(public, plaintext=True) as server:
        address = server.address.replace("0.0.0.0", "127.0.0.1")
        with ps.connect(address, config, token=server.token) as client:
            client.push(ONES).result(WAIT_S)
        words = f"{public} is served without TLS, as plaintext=True says"
        assert [text for _, text in server.wait(WAIT_S).events] == [words]
        assert [record.getMessage() for record in caplog.records] == [words]
    with ps.Server(START, config).serve(f"{transport.scheme}://127.0.0.1:0") as server:
        assert server.events == []


# A byte that was changed on the way


class Flipping(Tap):
    """Flips one bit of what goes to the server, once, where it is told to."""

    flip = False

    def _pass_on(self, source, target, kept):
        toward_server = any(kept is asked for asked in self.asked)
        with contextlib.suppress(OSError):
            while some := bytearray(source.recv(2**16)):
                if self.flip and toward_server and len(some) > 1000:
                    self.flip, some[len(some) // 2] = False, some[len(some) // 2] ^ 1
                kept += some
                target.sendall(some)
            target.shutdown(2)
            source.shutdown(2)


def test_a_flipped_bit_under_tls_ends_the_connection_and_changes_nothing():
    gradient = {"w": np.ones(5000)}
    certificate, key = issue_certificate("127.0.0.1")
    with files(certificate + key, certificate) as (mine, known):
        config = over(ps.Tcp(certificate=mine, authority=known, pool=1))
        with (
            serve(config, {"w": np.zeros(5000)}) as server,
            contextlib.closing(Flipping(server.address)) as tap,
            ps.connect(tap.address, config, token=server.token) as client,
        ):
            assert client.push(gradient).result(WAIT_S) == "applied"
            connections = len(tap.asked)
            tap.flip = True
            assert client.push(gradient).result(WAIT_S) == "applied"
            assert (tap.flip, len(tap.asked)) == (False, connections + 1), "it has connected again"
            np.testing.assert_array_equal(server.params["w"], np.full(5000, -1.0))
            assert (server.shard.applied, server.events) == (2, [])


def test_a_question_needs_no_hello():
    with serve(over("tcp")) as server, asking(server.address, server.token, None, WAIT_S) as ask:
        assert ask("status")["applied"] == 0
        assert not server.connected
