"""Rows of tables: what travels, what is stepped, and what is refused."""

from contextlib import ExitStack, contextmanager

import numpy as np
import pytest

import minips as ps
from minips.core.partition import cut, join, partition
from minips.core.rows import TableParameters, row_numbers
from minips.stages.aggregators import Contribution

START = {"E": np.arange(2000, dtype="f4").reshape(500, 4) / 2000, "b": np.ones(3, "f4")}
PLACEMENTS = [{}, {"servers": 3}, {"servers": 3, "placement": "modulo"}]
TOKEN = "0123456789abcdef"


@contextmanager
def client_of(tables=("E",), start=START, **fields):
    config = ps.Config(**{"workers": 1, "optimizer": ps.SGD(lr=0.5), **fields})
    with ExitStack() as stack:
        servers = [
            stack.enter_context(ps.Server(start, config, index=index, tables=tables).serve(token=TOKEN))
            for index in range(config.servers)
        ]
        yield stack.enter_context(ps.connect([server.address for server in servers], config, token=TOKEN)), servers


def pushes(steps=40):
    """Row numbers with repeats in any order, their values, and another tensor's gradient."""
    rng = np.random.default_rng(0)
    for _ in range(steps):
        yield rng.integers(0, 500, 20), rng.normal(size=(20, 4)).astype("f4"), rng.normal(size=3).astype("f4")


def dense(ids, values, like=START["E"]):
    g = np.zeros_like(like)
    np.add.at(g, ids, values)
    return g


@pytest.mark.parametrize("fields", PLACEMENTS, ids=repr)
@pytest.mark.parametrize("optimizer", [ps.SGD(lr=0.5), ps.Adagrad()], ids=lambda one: one.name)
def test_rows_end_at_the_bits_of_dense_pushes(fields, optimizer):
    ends = []
    for tables in ((), ("E",)):
        with client_of(tables, optimizer=optimizer, **fields) as (client, _):
            for ids, values, b in pushes():
                g = ps.Rows(ids, values) if tables else dense(ids, values)
                got = client.push_pull({"E": g, "b": b}, rows={"E": ids[:7]}, loss=1.0).result(10)
                ends.append(client.pull().result(10))
                assert np.array_equal(got["E"], ends[-1]["E"][ids[:7]])
    for one, other in zip(ends[:40], ends[40:], strict=True):
        assert all(np.array_equal(one[name], other[name]) for name in START)


def test_adam_is_lazy():
    """Against the loop of PyTorch's SparseAdam: all steps count, and only touched rows have their means decay."""
    p, m, v = START["E"].copy(), np.zeros((500, 4), "f4"), np.zeros((500, 4), "f4")
    with client_of(optimizer=ps.Adam(lr=0.1)) as (client, _):
        for t, (ids, values, b) in enumerate(pushes(), 1):
            got = client.push_pull({"E": ps.Rows(ids, values), "b": b}).result(10)["E"]
            rows, g = np.unique(ids), dense(ids, values)[np.unique(ids)]
            m[rows] += 0.1 * (g - m[rows])
            v[rows] += 0.001 * (g * g - v[rows])
            p[rows] -= 0.1 * (m[rows] / (1 - 0.9**t)) / (np.sqrt(v[rows] / (1 - 0.999**t)) + 1e-8)
            assert np.allclose(got, p, atol=1e-5)


def test_two_workers_rows_are_averaged_as_whole_gradients_are():
    parameters = TableParameters(["E"], START, ps.Mean(), ps.SGD(lr=1.0), lambda: 0.0)
    first, second = ps.Rows(np.array([1, 3]), np.ones((2, 4), "f4")), ps.Rows(np.array([3]), np.ones((1, 4), "f4"))
    both = [Contribution(k, 0, 0, {"E": g, "b": np.zeros(3, "f4")}) for k, g in enumerate((first, second))]
    assert parameters.update(both, 1.0) is None
    moved = START["E"] - parameters.lend()["E"]
    assert [round(float(moved[row, 0]), 5) for row in (1, 2, 3)] == [0.5, 0.0, 1.0]
    assert parameters.rows_pushed == 3


def test_a_readers_arrays_stay_and_without_readers_nothing_is_copied():
    parameters = TableParameters(["E"], START, ps.Mean(), ps.SGD(lr=1.0), lambda: 0.0)

    def push():
        rows = ps.Rows(np.array([0]), np.ones((1, 4), "f4"))
        parameters.update([Contribution(0, 0, 0, {"E": rows, "b": np.ones(3, "f4")})], 1.0)

    kept = parameters.lend()["E"][:5]
    push()
    assert np.array_equal(kept, START["E"][:5])
    address = parameters.lend()["E"].ctypes.data
    push()
    now = parameters.lend()["E"]
    assert (now.ctypes.data, now[0, 0]) == (address, -2.0)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (ps.Rows([1, 500], np.ones((2, 4), "f4")), "rows 0 to 499"),
        (ps.Rows([-1], np.ones((1, 4), "f4")), "rows 0 to 499"),
        (ps.Rows([0.5], np.ones((1, 4), "f4")), "whole numbers"),
        (ps.Rows([1], np.ones((1, 5), "f4")), r"\(1, 4\)"),
        (ps.Rows([1, 2], np.ones((1, 4), "f4")), r"\(2, 4\)"),
        (ps.Rows([1], np.ones((1, 4), "f8")), "float32"),
        (ps.Rows([1], np.full((1, 4), np.nan, "f4")), "NaN"),
        (np.zeros((500, 4), "f4"), "is a table"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
@pytest.mark.parametrize("checks", ["client", "server"])
def test_wrong_rows_are_refused_with_nothing_changed(wrong, words, checks, monkeypatch):
    if checks == "server":  # a client of another make
        monkeypatch.setattr("minips.drivers.client.check_rows", lambda gradients, like, tables: dict(gradients))
        monkeypatch.setattr("minips.core.rows.TablePart.cut", lambda part, x: x)
        if isinstance(wrong, ps.Rows):
            wrong = wrong._replace(ids=np.array(wrong.ids))
    with client_of() as (client, (server,)):
        with pytest.raises(ValueError, match=words):
            client.push({"E": wrong, "b": np.ones(3, "f4")}).result(10)
        assert all(np.array_equal(server.params[name], x) for name, x in START.items())
        assert (client.clock, server.shard.clocks) == (0, [0])
        assert (
            client.push({"E": ps.Rows(np.array([], int), np.ones((0, 4), "f4")), "b": np.ones(3, "f4")}).result(10)
            == "applied"
        )


def test_only_tables_take_rows_and_only_some_stages_know_them():
    with client_of(tables=()) as (client, _), pytest.raises(ValueError, match="Only a table takes"):
        client.push({"E": ps.Rows([1], np.ones((1, 4), "f4")), "b": np.ones(3, "f4")})
    feedback = ps.Codec(memory=ps.ErrorFeedback())
    for fields in (
        {"push": feedback},
        {"pull": feedback},
        {"aggregator": ps.Median(), "workers": 3},
        {"exchange": ps.RingAllReduce()},
    ):
        with pytest.raises(ValueError, match="E would travel by rows"):
            ps.Server(START, ps.Config(**fields), tables=("E",))
    for name in ("missing", "s"):
        with pytest.raises(ValueError, match="tables names tensors that have rows"):
            ps.Server({**START, "s": np.float32(0)}, ps.Config(), tables=(name,))


def test_a_diverging_update_of_rows_changes_nothing():
    with client_of() as (client, (server,)):
        huge = ps.Rows([1], np.full((1, 4), 3e38, "f4"))
        for _ in range(4):
            outcome = client.push({"E": huge, "b": np.ones(3, "f4")}).result(10)
        assert (outcome, np.isfinite(server.params["E"]).all()) == ("over", True)


@pytest.mark.parametrize("placement", ["ranges", "modulo"])
@pytest.mark.parametrize("servers", [1, 3, 7])
def test_parts_of_a_table_are_whole_rows_that_make_the_table(placement, servers):
    layouts = partition(START, servers, ("E",), placement)
    pieces = [cut(START, layout) for layout in layouts]
    assert all(piece["E"].shape[1:] == (4,) for piece in pieces if "E" in piece)
    assert all(np.array_equal(x, START[name]) for name, x in join(pieces, layouts).items())
    assert sum(part.values for layout in layouts for part in layout.values()) == 2003
    if placement == "modulo":
        assert [piece["E"][0, 0] for piece in pieces] == [START["E"][k, 0] for k in range(servers)]


def test_a_dense_tensor_is_cut_as_without_tables():
    assert partition(START, 3) == partition(START, 3, (), "modulo")


@pytest.mark.parametrize("serializer", ["json", "npy", "protobuf"])
def test_rows_travel_in_every_format_and_through_a_quantizer(serializer):
    codec = ps.Codec(quantizer=ps.Float16(), serializer=serializer)
    with client_of(push=codec) as (client, _):
        ids, values = np.array([9, 2, 9]), np.ones((3, 4), "f4")
        got = client.push_pull({"E": ps.Rows(ids, values), "b": np.ones(3, "f4")}, rows={"E": [9, 2, 3]}).result(10)
        assert np.allclose(got["E"], START["E"][[9, 2, 3]] - np.float32([[1.0], [0.5], [0.0]]))


def test_bytes_of_a_hundred_rows_of_a_million():
    start = {"E": np.zeros((1_000_000, 16), "f4")}
    with client_of(start=start) as (client, _):
        ids = np.arange(100) * 9_999
        client.push_pull({"E": ps.Rows(ids, np.ones((100, 16), "f4"))}, rows={"E": ids}).result(10)
        sent, received = client.bytes_sent, client.bytes_received
        client.push_pull({"E": ps.Rows(ids, np.ones((100, 16), "f4"))}, rows={"E": ids}).result(10)
        assert client.bytes_sent - sent <= 8_000
        assert client.bytes_received - received <= 7_000


class Misread(ps.ClickModel):
    """Clicks whose batches claim to read, or whose gradient has, other rows than there are."""

    def __init__(self, needed=None, touched=None):
        super().__init__(*CLICKS)
        self.needed, self.touched = needed, touched

    def shard(self, worker, workers):
        return self

    def rows_needed(self, rows=None):
        needed = super().rows_needed(rows)
        return self.needed(needed) if self.needed else needed

    def loss_and_gradient(self, params, rows=None):
        loss, gradient = super().loss_and_gradient(params, rows)
        if self.touched:
            gradient["E"] = ps.Rows(self.touched(gradient["E"].ids), gradient["E"].values)
        return loss, gradient


CLICKS = ps.datasets.clicks(rows=200, items=50, width=4)
ITEMS = ps.ClickModel(*CLICKS).items
THERE = rf"'E', a tensor of shape \({ITEMS}, 4\), has the rows 0 to {ITEMS - 1}; "


def last(row):
    """The rows with another one in the place of the last."""
    return lambda ids: np.append(ids[:-1], row)


@pytest.mark.parametrize("engine", ["threads", "simulated"])
@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"needed": lambda needed: {"E": last(ITEMS)(needed["E"])}}, THERE + rf"got {ITEMS}, 1 of \d+ numbers"),
        ({"needed": lambda needed: {"E": [0, -1, 2, -5]}}, THERE + r"got -1, -5, 2 of 4 numbers\."),
        ({"needed": lambda needed: {"E": ["a"]}}, r"Rows are a list of whole numbers.*got \['a'\] for 'E'"),
        ({"needed": lambda needed: {}}, r"rows_needed gives the rows of each table, as in {'E': \[0, 2\]}; got {}"),
        ({"touched": last(ITEMS + 7)}, THERE + rf"got {ITEMS + 7}, 1 of \d+ numbers"),
        ({"touched": last(-3)}, THERE + r"got -3, 1 of \d+ numbers"),
    ],
    ids=["beyond", "negative", "text", "none", "pushed beyond", "pushed negative"],
)
def test_a_problem_that_names_rows_that_do_not_exist_hears_which(engine, servers, wrong, words):
    config = ps.Config(workers=1, steps=2, servers=servers, batch_size=32, transport="inproc")
    with pytest.raises(RuntimeError, match=words):
        ps.train(Misread(**wrong), config, engine=engine)
    if "needed" in wrong:
        with pytest.raises((ValueError, RuntimeError), match=words):
            ps.cost.predict(Misread(**wrong), config, ps.cost.Calibration())


def test_of_many_wrong_row_numbers_the_first_are_named():
    with pytest.raises(ValueError, match=r"A tensor of shape \(5,\) has the rows 0 to 4; got 9\.$"):
        row_numbers([9], (5,))
    with pytest.raises(ValueError, match=r"got 5, 6, 7, 8, 9, 10, 11, 12, …, 95 of 100 numbers\.$"):
        row_numbers(np.arange(100), (5,))
    with pytest.raises(ValueError, match=r"A tensor of shape \(0, 2\) has no rows; got 0\.$"):
        row_numbers([0], (0, 2))
