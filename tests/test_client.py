"""A worker's side: futures, references, several servers, and what is refused before it leaves."""

import asyncio
import dataclasses
import sys
import threading
from collections import Counter, deque
from contextlib import ExitStack, contextmanager
from functools import partial

import numpy as np
import pytest

import minips as ps
from minips.core.message import Message
from minips.core.sessions import Do, Receive, Send, Until

WAIT_S = 20.0
START = {"W": np.arange(6, dtype="f4").reshape(2, 3), "b": np.array(1.0)}
ONES = {"W": np.ones((2, 3), "f4"), "b": np.array(1.0)}
ONE = ps.Config(transport="inproc", consistency="asp", workers=1, optimizer=ps.SGD(lr=1.0), timeout_s=20.0)
TWO = dataclasses.replace(ONE, workers=2)


@contextmanager
def cluster(config=ONE, params=START, updates=None):
    """Servers, as many as the config says, and a way to connect to them."""
    given = updates if isinstance(updates, list) else [updates] * config.servers
    with ExitStack() as stack:
        servers = [
            stack.enter_context(ps.Server(params, config, index=index, updates=given[index]).serve(token="t"))
            for index in range(config.servers)
        ]
        addresses = [server.address for server in servers]
        yield servers, lambda worker=0: stack.enter_context(ps.connect(addresses, config, worker=worker, token="t"))


@pytest.mark.parametrize("transport", ["inproc", "pipe", "tcp"])
@pytest.mark.parametrize("servers", [1, 2, 4, 7])
def test_push_pull_and_both_across_servers(transport, servers):
    with cluster(dataclasses.replace(ONE, transport=transport, servers=servers)) as (_, connect):
        client = connect()
        assert client.push(ONES).result(WAIT_S) == "applied"
        pulled = client.pull().result(WAIT_S)
        assert list(pulled) == list(START)
        for name, x in START.items():
            np.testing.assert_array_equal(pulled[name], x - 1, strict=True)
        both = client.push_pull(ONES).result(WAIT_S)
        np.testing.assert_array_equal(both["W"], START["W"] - 2, strict=True)
        assert client.clock == 2
        assert client.versions == (2,) * servers


def test_a_single_address_may_be_a_string():
    with ps.Server(START, ONE).serve() as server, ps.connect(server.address, ONE, token=server.token) as client:
        np.testing.assert_array_equal(client.pull().result(WAIT_S)["W"], START["W"])


def test_an_empty_trace_that_is_given_is_the_one_that_is_filled():
    trace = ps.Trace("mine")
    with (
        ps.Server(START, ONE).serve() as server,
        ps.connect(server.address, ONE, token=server.token, trace=trace) as client,
    ):
        client.pull().result(WAIT_S)
    assert {"transfer", "wait"} <= set(trace.seconds("mine"))


def test_what_is_pulled_can_be_written_and_is_ones_own():
    with cluster() as (servers, connect):
        pulled = connect().pull().result(WAIT_S)
        pulled["W"] += 5
        pulled["b"][...] = 7
        np.testing.assert_array_equal(servers[0].params["W"], START["W"])


@pytest.mark.parametrize("servers", [1, 3])
def test_a_reference_fetches_when_it_is_wanted(servers):
    with cluster(dataclasses.replace(ONE, servers=servers)) as (_, connect):
        client = connect()
        refs = client.refs()
        assert [(ref.name, ref.shape, ref.dtype) for ref in refs.values()] == [
            ("W", (2, 3), "float32"),
            ("b", (), "float64"),
        ]
        assert repr(refs["W"]) == "<Ref 'W' float32[2, 3]>"
        client.push(ONES).result(WAIT_S)
        np.testing.assert_array_equal(refs["W"].fetch(), START["W"] - 1, strict=True)
        np.testing.assert_array_equal(refs["b"].fetch(), np.array(0.0), strict=True)


@pytest.mark.parametrize("servers", [1, 3])
def test_a_pull_of_some_names_brings_only_these(servers):
    with cluster(dataclasses.replace(ONE, servers=servers)) as (_, connect):
        pulled = connect().pull(["b"]).result(WAIT_S)
        assert pulled == {"b": START["b"]}


@pytest.mark.parametrize("servers", [1, 2, 3])
@pytest.mark.parametrize("rows", [[0], [3, 1, 3], range(5), []], ids=repr)
def test_rows_of_a_tensor_come_alone_and_in_the_order_asked_for(servers, rows):
    params = {"E": np.arange(40.0).reshape(5, 4, 2), "b": np.array(1.0)}
    with cluster(dataclasses.replace(ONE, servers=servers), params) as (_, connect):
        client = connect()
        got = client.refs()["E"].fetch(rows)
        np.testing.assert_array_equal(got, params["E"][list(rows)], strict=True)
        both = client.pull(rows={"E": rows}).result(WAIT_S)
        np.testing.assert_array_equal(both["E"], params["E"][list(rows)], strict=True)
        assert both["b"] == 1.0


def test_rows_cost_what_they_weigh():
    with cluster(params={"E": np.zeros((1000, 100))}) as (_, connect):
        client = connect()
        before = client.bytes_received
        client.refs()["E"].fetch([7, 8])
        assert 2 * 100 * 8 < client.bytes_received - before < 2 * 100 * 8 + 300


@pytest.mark.parametrize(("name", "rows"), [("W", [2]), ("W", [-1]), ("b", [0]), ("nosuch", [0])])
def test_rows_that_there_are_not_are_refused(name, rows):
    with (
        cluster() as (_, connect),
        pytest.raises(ValueError, match=r"There is no tensor|has the rows 0 to|has no rows"),
    ):
        connect().pull(rows={name: rows})


@pytest.mark.parametrize("rows", [[False, True], [1.9], [None], 1, ["a"], [[0, 1]], None], ids=repr)
@pytest.mark.parametrize("fetch", [True, False])
def test_rows_that_are_no_list_of_whole_numbers_are_refused(rows, fetch):
    with cluster() as (_, connect):
        client = connect()
        if fetch and rows is None:  # all of them
            return
        with pytest.raises(ValueError, match="Rows are a list of whole numbers"):
            client.refs()["W"].fetch(rows) if fetch else client.pull(rows={"W": rows})


def test_a_pull_whose_answer_does_not_decode_leaves_both_halves_of_a_memory_the_same(monkeypatch):
    config = dataclasses.replace(ONE, pull=ps.Codec(memory=ps.Delta()))
    with cluster(config) as (servers, connect):
        client = connect()
        client.pull().result(WAIT_S)
        client.push(ONES).result(WAIT_S)
        with monkeypatch.context() as patch:
            patch.setattr(ps.Delta, "restore", lambda memory, received, state: received / 0 if state is None else 1 / 0)
            with pytest.raises(ZeroDivisionError):
                client.pull().result(WAIT_S)
        for _ in range(2):
            np.testing.assert_array_equal(client.pull().result(WAIT_S)["W"], servers[0].params["W"], strict=True)


def test_rows_do_not_pass_through_a_memory_of_whole_tensors():
    config = dataclasses.replace(ONE, pull=ps.Codec(memory=ps.Delta()))
    with cluster(config) as (_, connect), pytest.raises(ValueError, match="remembers whole tensors"):
        connect().refs()["W"].fetch([0])


def test_many_futures_may_be_outstanding():
    with cluster(dataclasses.replace(ONE, servers=2)) as (_, connect):
        client = connect()
        pushes = [client.push(ONES) for _ in range(20)]
        last = client.pull()
        assert [push.result(WAIT_S) for push in pushes] == ["applied"] * 20
        np.testing.assert_array_equal(last.result(WAIT_S)["W"], START["W"] - 20)
        assert client.clock == 20


@pytest.mark.soak
def test_no_push_is_lost_where_two_threads_have_several_outstanding():
    outcomes = Counter()

    def work():
        outstanding = deque()
        for _ in range(10_000):
            outstanding.append(client.push(ONES))
            if len(outstanding) == 5:
                outcomes[outstanding.popleft().result(WAIT_S)] += 1
        for push in outstanding:
            outcomes[push.result(WAIT_S)] += 1

    with cluster(dataclasses.replace(ONE, transport="tcp")) as ([server], connect):
        client = connect()
        before = sys.getswitchinterval()
        sys.setswitchinterval(1e-7)
        try:
            threads = [threading.Thread(target=work) for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(100.0)
        finally:
            sys.setswitchinterval(before)
        assert outcomes == {"applied": 20_000}
        assert (server.shard.applied, client.clock) == (20_000, 20_000)


@pytest.mark.parametrize("pushes", [4_000, pytest.param(20_000, marks=pytest.mark.soak)])
@pytest.mark.parametrize(("consistency", "outcomes"), [("asp", {"applied": 2}), ("bsp", {"applied": 1, "held": 1})])
def test_no_push_is_lost_where_coroutines_have_several_outstanding(consistency, outcomes, pushes):
    coroutines, outstanding = 4, 5

    async def work(client):
        told = Counter()
        for _ in range(pushes // 2 // coroutines // outstanding):
            told.update(await asyncio.gather(*(client.push(ONES) for _ in range(outstanding))))
        return told

    async def all_of_them(clients):
        works = [work(client) for client in clients for _ in range(coroutines)]
        return sum(await asyncio.wait_for(asyncio.gather(*works), 100.0), Counter())

    with cluster(dataclasses.replace(TWO, transport="tcp", consistency=consistency)) as ([server], connect):
        clients = [connect(0), connect(1)]
        before = sys.getswitchinterval()
        sys.setswitchinterval(1e-7)
        try:
            told = asyncio.run(all_of_them(clients))
        finally:
            sys.setswitchinterval(before)
        assert told == {outcome: pushes // 2 * each for outcome, each in outcomes.items()}
        assert (server.shard.applied, [client.clock for client in clients]) == (pushes, [pushes // 2] * 2)


def test_what_has_been_sent_cannot_be_cancelled():
    with cluster(dataclasses.replace(TWO, consistency=ps.BSP())) as (_, connect):
        one, other = connect(0), connect(1)
        waiting = one.push_pull(ONES)
        assert not waiting.cancel()
        other.push(ONES).result(WAIT_S)
        np.testing.assert_array_equal(waiting.result(WAIT_S)["W"], START["W"] - 1)


def test_pushes_of_later_rounds_wait_in_line():
    with cluster(dataclasses.replace(TWO, consistency=ps.BSP(), servers=2)) as (_, connect):
        ahead, behind = connect(0), connect(1)
        pushes = [ahead.push(ONES) for _ in range(3)]
        pulled = ahead.pull()
        assert pushes[0].result(WAIT_S) == "held"
        assert behind.push(ONES).result(WAIT_S) == "applied"
        assert behind.push(ONES).result(WAIT_S) in ("held", "applied")  # the other's second may come before or after
        assert pushes[1].result(WAIT_S) in ("held", "applied")
        assert not pulled.done()
        behind.push(ONES).result(WAIT_S)
        np.testing.assert_array_equal(pulled.result(WAIT_S)["W"], START["W"] - 3)


def test_pushes_are_stamped_with_what_they_were_computed_from():
    with cluster(TWO) as ((server,), connect):
        one, other = connect(0), connect(1)
        one.pull().result(WAIT_S)
        other.push_pull(ONES).result(WAIT_S)
        other.push_pull(ONES).result(WAIT_S)
        one.push(ONES).result(WAIT_S)
        other.push(ONES, versions=(0,)).result(WAIT_S)
        assert server.shard.staleness == {0: 2, 2: 1, 3: 1}


def test_gradients_are_as_fresh_on_a_server_that_holds_nothing():
    config = dataclasses.replace(ONE, servers=4)
    params = {
        "wide": np.zeros(1),
        "w": np.zeros(3, "f4"),
    }  # of 20 bytes, so that a range of 5 falls into the first value
    with cluster(config, params) as (servers, connect):
        assert any(not server.layout for server in servers)
        client = connect()
        for _ in range(3):
            client.push_pull({name: np.ones_like(x) for name, x in params.items()}).result(WAIT_S)
        assert [server.shard.staleness for server in servers] == [{0: 3}] * 4


def test_a_loss_travels_with_its_gradients():
    with cluster() as ((server,), connect):
        client = connect()
        for loss in (0.25, np.float32(0.5), np.array(0.75)):
            client.push(ONES, loss=loss).result(WAIT_S)
        assert [(step, loss) for _, step, loss in server.losses] == [(1, 0.25), (2, 0.5), (3, 0.75)]


def test_bytes_are_counted_both_ways():
    with cluster() as (_, connect):
        client = connect()
        sent, received = client.bytes_sent, client.bytes_received
        client.push_pull(ONES).result(WAIT_S)
        payload = sum(x.nbytes for x in ONES.values())
        assert payload < client.bytes_sent - sent < payload + 400
        assert payload < client.bytes_received - received < payload + 400
        assert {"transfer", "wait", "quantize", "dequantize"} <= set(client.trace.seconds())


@pytest.mark.parametrize("consistency", ["asp", ps.SSP(staleness=50)])
@pytest.mark.parametrize(("lr", "count"), [(1.0, 50), (3.0, 150)])
def test_without_rounds_a_push_is_scaled_by_the_number_of_workers(consistency, lr, count):
    config = ps.Config(workers=3, consistency=consistency, optimizer=ps.SGD(lr=lr), transport="inproc")
    with cluster(config, {"n": np.zeros(1)}) as (_, connect):
        clients = [connect(worker) for worker in range(3)]
        for _ in range(50):
            for client in clients:
                client.push({"n": np.array([-1.0])}).result(WAIT_S)
        assert clients[0].pull().result(WAIT_S)["n"] == pytest.approx(count)


def test_the_rules_are_the_servers_whatever_config_a_client_has():
    config = ps.Config(workers=3, consistency="asp", optimizer=ps.SGD(lr=1.0))
    other = ps.Config(workers=5, consistency="ssp", aggregator="median", optimizer=ps.SGD(lr=100.0))
    with ps.Server({"n": np.zeros(1)}, config).serve() as server:
        with ps.connect(server.address, other, worker=2, token=server.token) as client:
            assert client.push_pull({"n": np.array([-1.0])}).result(WAIT_S)["n"] == pytest.approx(1 / 3)
        with ps.connect(server.address, worker=2, token=server.token) as client:
            assert client.config.optimizer == config.optimizer


def test_a_server_for_one_worker_counts_each_push_whole():
    config = ps.Config(workers=1, optimizer=ps.SGD(lr=1.0), transport="inproc")
    with cluster(config, {"n": np.zeros(1)}) as (_, connect):
        client = connect()
        for _ in range(50):
            client.push({"n": np.array([-1.0])}).result(WAIT_S)
        assert client.pull().result(WAIT_S)["n"] == 50


# Refusals


WRONG = {
    "NaN": ({**ONES, "b": np.array(np.nan)}, "The gradient of 'b' holds NaN or infinity"),
    "infinity": ({**ONES, "W": np.full((2, 3), np.inf, "f4")}, "The gradient of 'W' holds NaN or infinity"),
    "shape": ({**ONES, "W": np.ones((3, 2), "f4")}, r"float32 of shape \(2, 3\); got float32 of \(3, 2\)"),
    "dtype": (
        {**ONES, "W": np.ones((2, 3))},
        r"float32 of shape .*; got float64 .* Convert it with .astype\(np.float32\)",
    ),
    "whole numbers": ({**ONES, "b": np.array(1)}, r"float64 of shape .*; got int64 of \(\)\. Convert it with .astype"),
    "missing": ({"W": ONES["W"]}, "Expected gradients of W, b; got W"),
    "unknown": ({**ONES, "c": np.ones(1)}, "Expected gradients of W, b; got W, b, c"),
    "none": ({}, "got none"),
}


@pytest.mark.parametrize("servers", [1, 3])
@pytest.mark.parametrize(("gradients", "words"), WRONG.values(), ids=list(WRONG))
@pytest.mark.parametrize("way", ["push", "push_pull"])
def test_gradients_that_do_not_fit_are_refused_before_they_leave(way, gradients, words, servers):
    with cluster(dataclasses.replace(ONE, servers=servers)) as (running, connect):
        client = connect()
        sent = client.bytes_sent
        with pytest.raises(ValueError, match=words):
            getattr(client, way)(gradients)
        assert (client.bytes_sent, client.clock) == (sent, 0)
        assert [server.shard.version for server in running] == [0] * servers
        assert client.push(ONES).result(WAIT_S) == "applied"


def test_pushes_that_the_server_refuses_leave_the_clock_where_it_was(monkeypatch):
    with cluster() as ((server,), connect):
        client = connect()
        client.push(ONES).result(WAIT_S)
        with monkeypatch.context() as unchecked:
            unchecked.setattr("minips.drivers.client.check_gradients", lambda gradients, params: dict(gradients))
            refused = [client.push(gradients) for gradients, _ in list(WRONG.values())[:4]]
            for future in refused:
                with pytest.raises(ValueError, match=r"\w"):
                    future.result(WAIT_S)
        assert client.clock == 1
        assert client.push(ONES).result(WAIT_S) == "applied"
        np.testing.assert_array_equal(server.params["W"], START["W"] - 2)


def test_parameters_in_the_other_byte_order_are_pulled_as_they_are():
    with cluster(params={name: x.astype(x.dtype.newbyteorder(">")) for name, x in START.items()}) as (_, connect):
        client = connect()
        np.testing.assert_array_equal(client.pull().result(WAIT_S)["W"], START["W"], strict=True)
        np.testing.assert_array_equal(client.push_pull(ONES).result(WAIT_S)["W"], START["W"] - 1, strict=True)


def test_a_pull_of_an_unknown_name_is_refused():
    with cluster() as (_, connect), pytest.raises(ValueError, match="no tensor 'w' on the servers; there are W, b"):
        connect().pull(["W", "w"])


@pytest.mark.parametrize("byteorder", "<>=")
def test_gradients_in_the_other_byte_order_arrive_as_they_are(byteorder):
    with cluster() as ((server,), connect):
        gradients = {name: x.astype(x.dtype.newbyteorder(byteorder)) for name, x in ONES.items()}
        connect().push(gradients).result(WAIT_S)
        np.testing.assert_array_equal(server.params["W"], START["W"] - 1)


def test_nobody_at_an_address():
    for transport, address in (("tcp", "tcp://127.0.0.1:9"), ("pipe", "pipe://nobody"), ("inproc", "inproc://nobody")):
        with pytest.raises(ConnectionError, match=r"No server (answers|listens|of this process listens) at"):
            ps.connect(address, dataclasses.replace(ONE, transport=transport), token="t")


def test_an_address_of_another_transport_is_refused():
    with pytest.raises(ValueError, match="starts with inproc://"):
        ps.connect("tcp://127.0.0.1:9", ONE, token="t")


@pytest.mark.parametrize("order", [[0], [1, 0], [0, 0], [0, 1, 1], []], ids=repr)
def test_addresses_that_are_not_those_of_all_servers_in_order_are_refused(order):
    config = dataclasses.replace(ONE, servers=2)
    with cluster(config) as (servers, _), pytest.raises(ValueError, match="addresses of all"):
        ps.connect([servers[index].address for index in order], config, token="t")


def test_a_worker_that_there_is_not_is_refused():
    with cluster() as (_, connect), pytest.raises(ValueError, match="There are workers 0 to 0"):
        connect(1)


# Coming, going, and the end


def test_a_worker_that_comes_back_pushes_on():
    with cluster() as ((server,), connect):
        for count in range(1, 4):
            with connect() as client:
                assert client.push(ONES).result(WAIT_S) == "applied"
            np.testing.assert_array_equal(server.params["W"], START["W"] - count)
        assert server.shard.duplicates == 0


def test_after_close_nothing_is_sent():
    with cluster() as (_, connect):
        client = connect()
        client.close()
        client.close()
        with pytest.raises(ConnectionError):
            client.pull().result(WAIT_S)


def test_a_push_that_is_late_at_one_server_and_in_time_at_another_holds_nobody_up():
    config = dataclasses.replace(TWO, workers=3, servers=2, consistency=ps.BSP(backup=1))
    with cluster(config) as (servers, connect):
        slow = connect(2)
        for clock in range(2):  # rounds that only the first server has seen
            for worker in (0, 1):
                pieces = ps.core.partition.cut(ONES, servers[0].layout)
                servers[0].shard.push(ps.Contribution(worker, clock, clock, pieces))
        slow.push(ONES).result(WAIT_S)
        assert [server.shard.clocks[2] for server in servers] == [2, 1]
        assert [server.shard.late for server in servers] == [1, 0]
        other = connect(1)
        other_push = other.push(ONES)
        assert slow.push(ONES).result(WAIT_S) in ("held", "applied")
        other_push.result(WAIT_S)
        assert [server.shard.late for server in servers] == [1, 0]


def test_a_server_that_is_over_before_another_takes_pushes_on():
    config = dataclasses.replace(ONE, servers=2)
    with cluster(config, updates=[2, 4]) as (servers, connect):
        client = connect()
        outcomes = [client.push(ONES).result(WAIT_S) for _ in range(3)]
        assert outcomes == ["applied", "applied", "over"]
        assert not client.done
        client.push(ONES).result(WAIT_S)
        assert client.done
        assert [server.shard.applied for server in servers] == [2, 4]


UNFIT = [
    (None, {}, TypeError, "takes the server's address.*got None"),
    (5, {}, TypeError, "takes the server's address.*got 5"),
    (b"tcp://127.0.0.1:9", {}, TypeError, "takes the server's address.*got b'tcp"),
    ([None], {}, TypeError, r"takes the server's address.*got \[None\]"),
    ("tcp://127.0.0.1:9", {"token": None}, TypeError, "a text that is not empty.*got NoneType.*server.token"),
    ("tcp://127.0.0.1:9", {"token": b"x"}, TypeError, "a text that is not empty.*got bytes.*server.token"),
    ("tcp://127.0.0.1:9", {"token": ""}, ValueError, "a text that is not empty.*got an empty one.*server.token"),
    ("tcp://127.0.0.1:9", {"worker": "first"}, TypeError, "worker's number, from 0 on; got 'first'"),
    ("tcp://127.0.0.1:9", {"config": 5}, TypeError, "takes the Config.*got 5"),
    ("tcp://127.0.0.1:9", {"timeout": float("inf")}, ValueError, "timeout takes seconds.*got inf"),
]


@pytest.mark.parametrize(("address", "options", "kind", "words"), UNFIT, ids=range(len(UNFIT)))
def test_what_nobody_can_connect_with_is_refused_in_a_sentence(address, options, kind, words):
    with pytest.raises(kind, match=words):
        ps.connect(address, **{"token": "t", **options})


MISUSED = [
    (lambda client: client.push(None), TypeError, "mapping of names to gradients, here of W, b; got None"),
    (lambda client: client.push([]), TypeError, r"mapping of names to gradients, here of W, b; got \[\]"),
    (lambda client: client.push_pull(5), TypeError, "mapping of names to gradients, here of W, b; got 5"),
    (lambda client: client.push(ONES, versions=5), ValueError, "each of the 1 servers.*got 5"),
    (lambda client: client.push(ONES, versions=(0, 0)), ValueError, r"each of the 1 servers.*got \(0, 0\)"),
    (lambda client: client.pull(5), TypeError, r"list of names, such as \['w'\].*got 5"),
    (lambda client: client.pull("W"), TypeError, r"list of names, such as \['w'\].*got 'W'"),
    (lambda client: client.pull(rows=5), TypeError, r"rows as a mapping.*got 5"),
]


@pytest.mark.parametrize(("call", "kind", "words"), MISUSED, ids=range(len(MISUSED)))
def test_a_call_that_makes_no_sense_is_refused_in_a_sentence_and_the_next_one_is_served(call, kind, words):
    with cluster() as (_, connect):
        client = connect()
        with pytest.raises(kind, match=words):
            call(client)
        assert client.push(ONES).result(WAIT_S) == "applied"


def test_an_answer_that_does_not_come_is_a_time_out_in_words():
    with cluster(dataclasses.replace(TWO, consistency=ps.SSP(0))) as (_, connect):
        ahead, _behind = connect(0), connect(1)
        ahead.push(ONES).result(WAIT_S)
        with pytest.raises(TimeoutError, match=r"No answer came within 0\.2 seconds"):
            ahead.pull().result(0.2)


def test_a_client_carries_out_every_need_of_a_workers_session():
    def raises():
        raise ArithmeticError("once")

    with cluster() as (_, connect), connect() as client:
        locked, server = client._stepping.locked, client._servers[0]

        def session():
            assert locked()
            assert (yield Do((), 0, locked)) is False  # beside other sessions
            with pytest.raises(ArithmeticError, match="once"):
                yield Do((), 0, raises)
            assert locked()
            with pytest.raises(RuntimeError, match="waits for servers' answers only, but it needs Until"):
                yield Until(lambda: True, 0)
            assert locked()
            frames = yield Do((), 0, partial(server.encode, Message({"kind": "alive", "worker": 0})))
            yield Send(0, frames, 0)
            _, stamp = yield Do((), 0, partial(server.decode, (yield Receive(0))))
            assert locked()
            return stamp["clock"]

        assert client.begin(session(), timed=False).result(WAIT_S) == 0
        assert not locked()
