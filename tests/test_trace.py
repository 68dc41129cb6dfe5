"""Where the time went."""

import json
import math
import pickle
import sys
import threading
from collections import Counter
from itertools import pairwise

import pytest

import minips as ps
from minips.results.trace import SPANS, Span, Trace


@pytest.fixture
def trace():
    one, other = Trace("worker 1"), Trace("server 0")
    one.step = 3
    one.add("compute", 10.0, 0.5)
    one.add("transfer", 10.5, 0.25)
    other.add("apply", 10.75, 0.125)
    other.add("apply", 11.0, 0.125)
    return one + other


def test_spans_are_recorded_with_who_and_step():
    trace = Trace("worker 2")
    trace.step = 5
    with trace.span("compute"):
        pass
    (span,) = trace
    assert (span.name, span.who, span.step) == ("compute", "worker 2", 5)
    assert span.seconds >= 0


def test_a_block_that_raises_is_recorded_too():
    trace = Trace()
    with pytest.raises(KeyError), trace.span("apply"):
        raise KeyError
    assert len(trace) == 1


def test_seconds_add_up_by_name_in_the_order_of_the_way(trace):
    assert trace.seconds() == {"compute": 0.5, "transfer": 0.25, "apply": 0.25}
    assert list(trace.seconds()) == [name for name in SPANS if name in trace.seconds()]
    assert trace.seconds("server") == {"apply": 0.25}


def test_since_counts_from_an_origin(trace):
    assert [span.start for span in trace.since(10.0)] == [0.0, 0.5, 0.75, 1.0]
    assert trace.spans[0] == Span("compute", "worker 1", 10.0, 0.5, 3)


def test_rows_that_threads_add_at_once_stay_whole():
    switching = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    trace = Trace("server 0")

    def record(number):
        for _ in range(2_000):
            trace.laps(("aggregate", "", "apply"), (number, number + 1.0, number + 3.0, number + 7.0))

    threads = [threading.Thread(target=record, args=(10.0 * number,)) for number in range(4)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
    finally:
        sys.setswitchinterval(switching)
    found = Counter((span.name, span.start, span.seconds) for span in trace)
    wanted = [row for n in range(4) for row in (("aggregate", 10.0 * n, 1.0), ("apply", 10.0 * n + 3.0, 4.0))]
    assert found == dict.fromkeys(wanted, 2_000)


CODECS = pytest.mark.parametrize("codec", [ps.Codec(), ps.Codec(ps.Uniform())], ids=["planned", "general"])


def messages_of(**fields):
    """The rows of a short run's messages, each with its party."""
    problem = ps.SoftmaxRegression(*ps.datasets.synthetic(rows=200, classes=3))
    config = ps.Config(workers=2, steps=5, transport=ps.InProc(), **fields)
    found = [(who, row) for who, _, row in ps.train(problem, config, engine="threads").trace.rows() if row.kind]
    assert all(row.nbytes > 0 for _, row in found)
    return found


@CODECS
def test_each_message_has_a_row_at_either_end(codec):
    found = messages_of(push=codec, servers=2)
    once = {(worker, server, clock): 1 for worker in range(2) for server in range(2) for clock in range(5)}
    pushes = [(who.split(), row) for who, row in found if row.kind == "push_pull"]
    sent = Counter((int(n), row.partner, row.clock) for (role, n), row in pushes if role == "worker")
    arrived = Counter((row.partner, int(n), row.clock) for (role, n), row in pushes if role == "server")
    assert sent == arrived == once
    assert all(row.step == row.clock for _, row in pushes)
    assert all(("serialize" in row.names) == (role == "worker") for (role, _), row in pushes)
    timed = [(int(who[-1]), row) for who, row in found if row.kind == "reply" and "wait" in row.names]
    assert all(row.names[:5] == ("transfer", "", "wait", "decompress", "deserialize") for _, row in timed)
    assert Counter((n, row.partner, row.clock - 1) for n, row in timed if row.clock) == once


@CODECS
def test_each_hop_has_a_row_at_either_end(codec):
    found = messages_of(push=codec, exchange=ps.RingAllReduce())
    hops = {(f"worker {worker}", "hop", 1 - worker, step): 2 for worker in range(2) for step in range(5)}
    for names in (("transfer",), ("wait", "transfer")):
        assert Counter((who, *row[3:6]) for who, row in found if row.names == names) == hops


def test_joined_rows_keep_their_messages():
    one, other = Trace("worker 0"), Trace("server 1")
    one.laps(("quantize", "serialize"), (10.0, 11.0, 13.0), "push", 1, 7, 400)
    other.laps(("decompress",), (12.0, 16.0), "push", 0, 7, 400)
    joined = (one + other).since(10.0)
    one.add("compute", 20.0, 1.0)
    assert [(who, row.kind, row.partner, row.clock, row.nbytes) for who, _, row in joined.rows()] == [
        ("worker 0", "push", 1, 7, 400),
        ("server 1", "push", 0, 7, 400),
    ]
    assert joined.spans == [
        Span("quantize", "worker 0", 0.0, 1.0, 0),
        Span("serialize", "worker 0", 1.0, 2.0, 0),
        Span("decompress", "server 1", 2.0, 4.0, 0),
    ]
    assert joined.since(1.0).spans[0].start == -1.0
    assert pickle.loads(pickle.dumps(joined)).spans == joined.spans


def test_a_joined_trace_has_the_room_that_its_parts_have_left():
    one = Trace("worker 0", limit=2)
    one.add("compute", 1.0, 1.0)
    joined = one + Trace("worker 1", limit=0)
    joined.add("compute", 2.0, 1.0)
    joined.add("compute", 3.0, 1.0)
    assert (len(joined), joined.until) == (2, 3.0)


def test_beyond_its_limit_a_trace_keeps_nothing_more():
    trace = Trace(limit=2)
    for _ in range(5):
        trace.add("compute", 0.0, 1.0)
    assert len(trace) == 2


def test_a_trace_says_from_when_on_spans_are_missing():
    first, other = Trace("worker 0", limit=3), Trace("worker 1", limit=9)
    for start in (10.0, 11.0):
        first.add("compute", start, 0.5)
    assert first.until == math.inf
    first.laps(("aggregate", "apply"), (12.0, 12.5, 13.0))
    first.add("compute", 14.0, 0.5)  # for which there is room
    first.add("compute", 15.0, 0.5)
    assert (len(first), first.until) == (3, 12.0)
    assert (other + first).since(10.0).until == 2.0
    assert (other + other).since(10.0).until == math.inf


def test_to_chrome_writes_complete_events_in_microseconds(trace, tmp_path):
    trace.to_chrome(tmp_path / "run.json")
    events = json.loads((tmp_path / "run.json").read_text())["traceEvents"]
    names = {event["tid"]: event["args"]["name"] for event in events if event["ph"] == "M"}
    spans = [event for event in events if event["ph"] == "X"]
    assert sorted(names.values()) == ["server 0", "worker 1"]
    assert len(spans) == len(trace)
    for event, span in zip(spans, trace, strict=True):
        assert (event["name"], names[event["tid"]], event["args"]["step"]) == (span.name, span.who, span.step)
        assert event["ts"] == pytest.approx((span.start - 10.0) * 1e6)
        assert event["dur"] == pytest.approx(span.seconds * 1e6)
        assert isinstance(event["pid"], int)


def test_to_chrome_of_nothing_is_an_empty_list(tmp_path):
    Trace().to_chrome(str(tmp_path / "run.json"))
    assert json.loads((tmp_path / "run.json").read_text()) == {"traceEvents": []}


def test_a_step_is_told_apart_into_spans_what_the_server_did_and_what_nobody_claims():
    rows = [
        (0.0, "compute", 2.0),
        (3.0, "transfer", 1.0),
        (6.0, "wait", 2.0),  # between the two, the server worked
        (8.0, "dequantize", 1.5),
        (10.0, "compute", 1.0),
        (11.0, "transfer", 2.0),
        (12.5, "wait", 0.0),  # of another server, meanwhile
        (14.0, "compute", 1.0),
    ]
    worker = Trace("", [(name, "worker 0", start, seconds, int(start >= 10)) for start, name, seconds in rows])
    trace = Trace("", [("apply", "server 0", 4.0, 2.0, 0)]) + worker
    first, second = trace.steps("worker 0")
    assert (first.step, first.start, first.seconds) == (0, 0.0, 10.0)
    assert first.spans == {"compute": 2.0, "transfer": 1.0, "wait": 2.0, "dequantize": 1.5}
    assert (first.served, first.unclaimed) == (2.0, 1.5)
    assert (second.step, second.seconds, second.served, second.unclaimed) == (1, 4.0, 0.0, 1.0)
    assert trace.steps("server 0") == trace.steps("worker 9") == []


@pytest.mark.parametrize("exchange", [ps.PS(), ps.RingAllReduce()], ids=repr)
def test_a_workers_spans_do_not_overlap_and_add_up_with_what_is_left(exchange):
    problem = ps.SoftmaxRegression(*ps.datasets.synthetic(rows=200, classes=3))
    codec = ps.Codec(ps.Uniform(), ps.ErrorFeedback(), compressor=ps.Zlib())
    config = ps.Config(push=codec, exchange=exchange, workers=2, steps=12, transport=ps.InProc())
    trace = ps.train(problem, config, engine="threads").trace
    for who in ("worker 0", "worker 1"):
        steps = trace.steps(who)
        assert [step.step for step in steps] == list(range(11))
        for step in steps:
            assert step.served >= 0
            assert step.unclaimed >= -1e-9
            assert sum(step.spans.values()) + step.served + step.unclaimed == pytest.approx(step.seconds)
            assert {"compute", "compensate", "quantize", "compress", "transfer"} <= step.spans.keys()
        spans = sorted((span for span in trace if span.who == who), key=lambda span: span.start)
        for one, after in pairwise(spans):
            assert one.start + one.seconds <= after.start + 1e-9
