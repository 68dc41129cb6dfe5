"""What `python -m benchmarks hosts` and `cost --engine hosts` run and say; their figures are for people."""

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console
from test_hosts import SMALL, made_here  # noqa: F401 - a fixture

import minips as ps
from benchmarks import __main__, base, cost, hosts
from benchmarks.retransmissions import Retransmissions
from minips.lab.measure.turns import Spread
from minips.machines.calibration import Calibration


def shown(module, rows):
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(module.table(rows))
    return console.export_text()


def test_fifteen_configs_on_hosts_meet_all_that_is_promised():
    plan = list(cost.on_hosts())
    met = {(name, engine.topology.bandwidth_bps) for name, _, engine in plan}
    ways = {"1 server": 20e6, "2 servers": 50e6, "ring": 100e6}
    codecs = {"exact", "float16", "8 bits", "top 1 %"}
    trees = {("exact, tree", bits) for bits in (20e6, 50e6, 100e6)}
    assert met == {(f"{codec}, {way}", bits) for codec in codecs for way, bits in ways.items()} | trees
    assert len(plan) == 15
    assert all(engine.buffer_bytes == 4_000_000 and config.link is None for _, config, engine in plan)
    assert {type(config.push.quantizer) for _, config, _ in plan} == {ps.Exact, ps.Float16, ps.Uniform, ps.TopK}
    assert all(config.push.compressor == ps.Codec().compressor for _, config, _ in plan)


def test_the_table_has_the_simulated_time_and_a_sentence_for_a_miss():
    times = Spread(0.12, 0.11, 0.13), Spread(0.1, 0.09, 0.11)
    rows = [
        cost.Row(
            "top 1 %, 2 servers", "hosts, 20 Mbit/s", *times, 0.2, 9, 9, simulated_s=0.25, miss="most in transfer"
        ),
        cost.Row("exact, tree", "hosts, 50 Mbit/s", *times, 0.05, 9, 9, simulated_s=0.26),
        cost.Row("exact, ring", "hosts, 50 Mbit/s", *times, 0.9, 9, 9, "It was busy.", simulated_s=0.26),
    ]
    words = " ".join(shown(cost, rows).split())
    assert "…" not in words
    assert "top 1 %, 2 servers 20 120 [110, 130] 250 100 [90, 110] +20%" in words
    assert "on hosts: median error 12.5%, worst 20.0%" in words
    assert "top 1 %, 2 servers, hosts, 20 Mbit/s, +20%: most in transfer" in words
    assert "not counted: exact, ring, hosts, 50 Mbit/s. It was busy." in words


def test_of_a_miss_the_span_is_named_and_what_was_sent_again():
    problem = ps.LinearRegression(*ps.datasets.synthetic(rows=64, features=4))
    config = ps.Config(workers=2, steps=5)
    prediction = ps.cost.predict(problem, config, Calibration())
    prediction = replace(prediction, limits=("One queue would have more.",))
    run = ps.train(problem, config, engine=ps.Simulated(ps.Star(1e5)))
    sentence = cost._miss(prediction, [run], [3, 1, 8])
    measured = run.trace.seconds()["transfer"] / run.updates
    assert sentence.startswith(f"most of it in transfer, predicted 0.0 ms, measured {measured * 1e3:.1f};")
    assert sentence.endswith("3 packets sent again in a run. One queue would have more.")


def test_an_engine_that_is_none_is_refused():
    with pytest.raises(ValueError, match=r"There is no contender 'host'\. .*hosts"):
        next(cost.measure(engine="host"))


def test_in_the_bad_order_each_hop_crosses_the_uplink():
    first = {rank: rank < 2 for rank in range(4)}
    for how, crossing in ((hosts.CrossingRing(), 4), (ps.RingAllReduce(), 2)):
        schedules = [how.schedule(rank, 4) for rank in range(4)]
        for number in range(6):
            hops = [schedule[number] for schedule in schedules]
            assert sum(first[rank] != first[hop.to] for rank, hop in enumerate(hops)) == crossing
            assert all(hops[hop.to].source == rank for rank, hop in enumerate(hops))
    runs = [
        ps.train(SMALL, ps.Config(workers=4, steps=3, exchange=how), engine=ps.Simulated())
        for how in (hosts.CrossingRing(), ps.RingAllReduce())
    ]
    for name, values in runs[0].params.items():
        assert values == pytest.approx(runs[1].params[name], rel=1e-5)


def row(name, predicted, measured, **words):
    return hosts._row("buffers", name, "s", Spread(predicted, predicted, predicted), measured, **words)


def test_the_table_of_hosts_fits_and_has_ratios_and_limits(monkeypatch):
    rows = [
        row("50 kB", 0.1, [0.3, 0.31, 0.32], words="412", note="One queue would have 300,000 bytes."),
        replace(row("two, uplink 50", 47.8e6, [47e6, 48e6], words="0.887"), group="flows, Mbit/s", unit="bit/s"),
        replace(row("bad over good", 2.0, [1.9]), group="racks", unit=""),
    ]
    words = " ".join(shown(hosts, rows).split())
    assert "…" not in words
    assert "50 kB 100 ms 310 ms [305, 315] 3.10 [3.05, 3.15] 412" in words
    assert "two, uplink 50 47.8 47.5 [47.2, 47.8] 0.99 [0.99, 1.00] 0.887" in words
    assert "bad over good 2.00 1.90 [1.90, 1.90] 0.95" in words
    assert "50 kB: One queue would have 300,000 bytes." in words
    assert set(hosts.chart(rows).series) == {"buffers", "flows, Mbit/s", "racks"}
    assert base.to_plain(rows[0])["ratio_quartiles"] == pytest.approx([3.05, 3.15])


def test_each_part_can_be_chosen_and_the_ring_is_held_in_both_orders(monkeypatch, tmp_path, capsys):
    def held(group, name, problem, config, calibration, engine, rounds, watch):
        seconds = 0.1 if name == "good order" else 0.22
        assert isinstance(config.exchange, hosts.CrossingRing) == (name == "bad order")
        return row(name, seconds * 0.9, [seconds] * rounds)

    monkeypatch.setattr(hosts, "_compare_runs", held)
    monkeypatch.setattr(hosts, "calibrate", lambda *given: Calibration())
    file = tmp_path / "rows.json"
    assert __main__.main(["hosts", "--parts", "racks", "--rounds", "2", "--json", str(file)]) == 0
    good, bad, ratio = json.loads(file.read_text())
    assert (good["contender"], bad["contender"], ratio["contender"]) == ("good order", "bad order", "bad over good")
    assert (ratio["predicted"], ratio["measured"]) == (pytest.approx(2.2), pytest.approx(2.2))
    assert ratio["ratio"] == pytest.approx(1.0)
    assert "bad over good" in capsys.readouterr().out
    assert [one.contender for one in hosts.buffers(1, lambda text, share: None)] == [
        "50 kB", "100 kB", "200 kB", "1,000 kB"
    ]  # fmt: skip


@pytest.mark.soak
def test_configs_on_hosts_are_predicted_simulated_and_run(made_here, monkeypatch):  # noqa: F811
    plan = list(cost.on_hosts())
    few = [(name, replace(config, workers=2, steps=3), engine) for name, config, engine in plan[-1:]]
    monkeypatch.setattr(cost, "on_hosts", lambda: iter(few))
    monkeypatch.setattr(cost, "MISS", -1)
    rows = list(cost.measure(features=20, rounds=1, engine="hosts"))
    assert [(one.contender, one.link) for one in rows] == [("exact, tree", "hosts, 100 Mbit/s")]
    for one in rows:
        assert one.predicted_bytes == one.measured_bytes
        assert one.simulated_s > 0
        assert "packets sent again in a run." in one.miss


@pytest.mark.soak
def test_two_flows_share_an_uplink(made_here):  # noqa: F811
    """The short form of what the table measures over 10 s, five times; a busy machine makes it slower, never faster."""
    engine = ps.Hosts(ps.TwoRacks(1e8, 0.0, uplink_bps=5e7), hosts.FLOW_BUFFER)
    rates = hosts.flow_rates(engine, 2, warm_s=0.5, seconds=1.0)
    assert 0.3 < sum(rates) / (5e7 * 1448 / 1514) < 1.1
    assert min(rates) > 0


@pytest.mark.soak
def test_what_overflows_a_buffer_is_sent_again_and_counted(made_here):  # noqa: F811
    lost = Retransmissions()
    problem = ps.SoftmaxRegression(*ps.datasets.fourier(ps.datasets.digits(), 2_000))
    config = ps.Config(workers=4, steps=8, batch_size=32)
    for nbytes in (10_000, 4_000_000):
        with lost.of_a_run():
            ps.train(problem, config, engine=ps.Hosts(buffer_bytes=nbytes), progress=lost.look)
    assert lost.counts[0] > 10 * lost.counts[1]
