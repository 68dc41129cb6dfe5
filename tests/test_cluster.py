"""The question of a cluster in one call: closed forms beside simulations, and the assumptions in words."""

import contextlib
import io
import json
from dataclasses import dataclass, replace

import pages
import pytest

import minips as ps
from minips import cost
from minips.machines.calibration import Calibration
from minips.machines.fit import Line

OFFICE = cost.Cluster(machines=8, bandwidth_bps=10e9, latency_s=50e-6, compute_s=0.08)
WAYS = ("ps", "ps:servers=2", "ps:servers=4", "ring", "tree", "halvingdoubling", "twoshot")
STAGES = {"quantize": Line(0.0, 1e-9), "dequantize": Line(0.0, 2e-9)}


@pytest.mark.parametrize("compute_s", [0.0, 0.08])
@pytest.mark.parametrize("machines", [1, 2, 4, 8, 32])
def test_closed_form_and_simulation_agree_for_an_exact_codec(machines, compute_s):
    table = replace(OFFICE, machines=machines, compute_s=compute_s).compare(25e6, WAYS)
    assert [row["way"] for row in table.rows] == list(WAYS)
    for row in table.rows:
        assert row["simulated (s)"] == pytest.approx(row["closed form (s)"], rel=1e-6)
        assert row["simulated (s)"] >= compute_s
    assert "Ratio" not in table.caption


def test_the_rows_are_what_arithmetic_says():
    served, ring = OFFICE.compare(25e6, ["ps:servers=2", "ring"]).rows
    second = 25e6 / (10e9 / 8)
    assert served["closed form (s)"] == pytest.approx(0.08 + 2 * 50e-6 + 5 * second)
    assert served["fair shares (s)"] == pytest.approx(0.08 + 2 * 50e-6 + 8 * second)
    assert (served["MB sent"], served["MB busiest"]) == (25, 100)
    assert ring["closed form (s)"] == ring["fair shares (s)"] == pytest.approx(0.08 + 14 * 50e-6 + 1.75 * second)
    assert ring["MB sent"] == ring["MB busiest"] == pytest.approx(1.75 * 25)
    few, many = (OFFICE.compare(25e6, "ring", codec).rows[0] for codec in ("uniform:bits=4", "exact"))
    assert few["MB sent"] == pytest.approx(many["MB sent"] / 8, rel=1e-3)
    (tree,) = OFFICE.compare(25e6, ps.TreeAllReduce()).rows
    assert (tree["MB sent"], tree["MB busiest"]) == (75, 75)


def test_messages_that_share_their_links_take_what_the_column_says():
    problem = ps.LinearRegression(*ps.datasets.synthetic(rows=16, features=20_000))
    small = cost.Cluster(machines=4, bandwidth_bps=1e8, latency_s=1e-3, compute_s=0.01)
    config = ps.Config(workers=4, steps=4, batch_size=1, link=small.link, optimizer=ps.SGD(lr=1e-6))
    values = sum(x.size for x in problem.init(None).values())
    for way in ("ps", "ring"):
        (row,) = small.compare(4 * values, way).rows
        run = ps.train(problem, replace(config, exchange=way), engine=ps.Simulated(compute_s=0.01))
        assert run.seconds_per_step == pytest.approx(row["fair shares (s)"], rel=0.03)


def test_where_they_differ_the_caption_says_why():
    slow = OFFICE.compare(25e6, "ps:servers=4", ["exact", ps.TopK(fraction=0.01)])
    exact, few = slow.rows
    assert exact["ratio"] == pytest.approx(1)
    assert 1.05 < few["ratio"] < 2
    assert "Ratio above 1" in slow.caption
    odd = replace(OFFICE, machines=3).compare(25e6, "tree")
    assert 0.8 < odd.rows[0]["ratio"] < 0.95
    assert "Ratio below 1" in odd.caption


def test_codec_time_is_free_without_a_calibration_and_counted_with_the_codecs_own():
    made = json.dumps({"push": ps.Codec(ps.Uniform()).to_dict(), "pull": ps.Codec().to_dict()})
    uniform = Calibration(worker=STAGES, server=STAGES, gradient=Line(9.0), others=5.0, subject=made)
    for way in WAYS:
        free = OFFICE.compare(25e6, way, ["exact", "uniform"])
        some = OFFICE.compare(25e6, way, ["exact", "uniform"], calibration=[uniform])
        assert [row["codec time"] for row in free.rows] == ["free", "free"]
        assert [row["codec time"] for row in some.rows] == ["free", "counted"]
        assert some.rows[0] == free.rows[0]
        assert some.rows[1]["closed form (s)"] == free.rows[1]["closed form (s)"]
        longer = some.rows[1]["simulated (s)"] - free.rows[1]["simulated (s)"]
        assert longer > 6.25e6 / 8 * 3e-9  # a piece is encoded and decoded at least
        assert "Codec time of exact is free" in some.caption
        assert "Codec time is free" in free.caption
    for_all = OFFICE.compare(25e6, "ring", ["exact", "uniform"], calibration=replace(uniform, subject=""))
    assert [row["codec time"] for row in for_all.rows] == ["counted", "counted"]
    assert "free" not in for_all.caption


def test_one_worker_takes_the_calibrations_seconds_one_after_the_other():
    known = Calibration(worker={"quantize": Line(0.01)}, server={"dequantize": Line(0.02)}, cores=1)
    alone = cost.Cluster(machines=1, bandwidth_bps=8e6, latency_s=0.0, compute_s=0.5, cores=2)
    (row,) = alone.compare(1e6, "ps", calibration=known).rows
    assert row["simulated (s)"] == pytest.approx(0.5 + 0.01 + 1 + 0.02 + 1)
    assert row["closed form (s)"] == pytest.approx(2.5)


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"nbytes": "25"}, TypeError, "compare takes the bytes of a gradient, such as nbytes=25e6; got '25'"),
        ({"nbytes": float("nan")}, ValueError, "A gradient has at least one float32, which is 4 bytes; got nbytes=nan"),
        ({"nbytes": 4e6, "calibration": 5}, TypeError, "compare takes a calibration, several, or None; got 5"),
    ],
)
def test_what_is_no_gradient_and_no_calibration_is_refused(given, error, words):
    with pytest.raises(error, match=words):
        OFFICE.compare(**given)


def test_a_table_says_what_it_assumes_and_goes_to_a_notebook():
    table = replace(OFFICE, cores=2).compare(25e6, ["ps:servers=2", "ring"], ["exact", "uniform"])
    above, head, *lines = str(table).splitlines()
    assert "closed" in above  # form (s)
    assert max(map(len, str(table).splitlines())) <= 100
    assert head.split()[:2] == ["way", "codec"]
    assert [line.split()[:2] for line in lines[:4]] == [
        [way, codec] for way in ("ps:servers=2", "ring") for codec in ("exact", "uniform")
    ]
    said = table.caption
    for words in (
        "8 machines",
        "computes 80 ms",
        "2 cores",
        "one at a time",
        "10 Gbit/s",
        "50 µs",
        "25 MB",
        "another such machine",
    ):
        assert words in said
    assert str(table).endswith(said)
    assert "servers" not in OFFICE.compare(1e6, "ring").caption
    assert "<caption" in table._repr_html_()
    assert "<caption" not in ps.RunTable([])._repr_html_()
    assert replace(table) == table
    assert cost.Cluster.from_dict(json.loads(json.dumps(OFFICE.to_dict()))) == OFFICE


@dataclass(frozen=True)
class Pair(ps.RingAllReduce):
    """A way of one's own, for which there is no formula."""

    name = "pair"


def test_the_page_shows_what_is_printed():
    blocks = pages.blocks("docs/cost.md")
    (at,) = (number for number, block in enumerate(blocks) if "cost.Cluster(" in block)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(blocks[at], {"ps": ps})
    assert said.getvalue() == blocks[at + 1]


def test_ways_and_codecs_are_values_names_and_dicts():
    ways = [{"name": "ps", "servers": 2}, ps.PS(), {"name": "ring"}, Pair()]
    codecs = [
        ps.Codec(ps.TopK(fraction=0.01), ps.ErrorFeedback(), compressor="zlib"),
        {"name": "topk", "fraction": 0.5},
        {"quantizer": "threshold"},
        {"quantizer": {"b": "exact", "*": "sign"}},
        ps.Sign(),
    ]
    rows = OFFICE.compare(1e6, iter(ways), iter(codecs)).rows
    assert len(rows) == len(ways) * len(codecs)
    assert list(dict.fromkeys(row["way"] for row in rows)) == ["ps:servers=2", "ps", "ring", "pair"]
    words = ["topk, errorfeedback, zlib", "topk:fraction=0.5", "threshold", "b: exact, *: sign", "sign"]
    assert [row["codec"].replace(":fraction=0.01", "") for row in rows[:5]] == words
    assert {row["closed form (s)"] for row in rows if row["way"] == "pair"} == {None}
    assert all(row["simulated (s)"] > 0.08 for row in rows)


@pytest.mark.parametrize(
    ("nbytes", "ways", "codecs", "words"),
    [
        (25e6, "rung", "exact", "There is no exchange named 'rung'.*Did you mean ring"),
        (25e6, "ps:severs=2", "exact", "PS has no field 'severs'"),
        (25e6, "ps:servers=0", "exact", "Config.servers must be at least 1"),
        (25e6, "ring", "topkk", "There is no quantizer named 'topkk'"),
        (25e6, "ring", ps.Lz4(), "Expected a quantizer, got the compressor"),
        (2, "ring", "exact", "at least one float32"),
    ],
)
def test_what_cannot_be_compared_is_a_sentence(nbytes, ways, codecs, words):
    with pytest.raises(ValueError, match=words):
        OFFICE.compare(nbytes, ways, codecs)
    with pytest.raises(ValueError, match="power of two"):
        replace(OFFICE, machines=6).compare(25e6, "halvingdoubling")
