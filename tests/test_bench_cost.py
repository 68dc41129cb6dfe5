"""What `python -m benchmarks cost` runs and says; its figures are for people, not for tests."""

import io
from dataclasses import replace
from itertools import product

import pytest
from rich.console import Console

import minips as ps
from benchmarks import base, cost, local, tune
from minips.cost import Choice, Tuning
from minips.lab.measure.turns import Spread


def test_twelve_configs_behind_links_meet_all_that_is_promised_and_twelve_are_bare():
    plan = list(cost.configs())
    shaped = [config for _, config in plan if config.link]
    assert (len(shaped), len(plan)) == (12, 24)
    assert {(one.link.bandwidth_bps, one.link.latency_s) for one in shaped} == set(
        product((10e6, 100e6, 1000e6), (0.0, 1e-3, 1e-2))
    )
    ways = {(one.push, one.exchange, one.servers) for one in shaped}
    assert len(ways) == 12
    assert len({push for push, _, _ in ways}) == 4
    assert {(exchange, servers) for _, exchange, servers in ways} == {
        (ps.PS(), 1),
        (ps.PS(), 2),
        (ps.RingAllReduce(), 1),
    }


@pytest.mark.soak
def test_a_config_is_predicted_and_then_run(monkeypatch):
    plan = list(cost.configs())
    few = [(name, replace(config, workers=2, steps=3)) for name, config in (plan[0], plan[14])]
    monkeypatch.setattr(cost, "configs", lambda: iter(few))
    told = []
    rows = list(cost.measure(features=20, rounds=2, watch=lambda text, share: told.append((text, share))))
    assert [row.contender for row in rows] == ["exact, 1 server", "exact, ring"]
    for row in rows:
        assert row.predicted_bytes == row.measured_bytes
        assert row.predicted_s.low <= row.predicted_s.median <= row.predicted_s.high
        assert row.error == pytest.approx(row.predicted_s.median / row.measured_s.median - 1)
    assert told[0] == ("calibrating exact, 1 server", 0.0)
    assert told[-1] == ("exact, ring, bare", 0.75)
    assert base.to_plain(rows[0])["predicted_s_quartiles"] == list(rows[0].predicted_s[1:])


def test_local_steps_are_predicted_with_a_delay_and_without():
    plan = dict(local.configs())
    assert {one.link for one in plan.values()} == {ps.Link(10e6, 1e-3)}
    computing = {(one.local_steps, one.delays.seconds if one.delays else None) for one in plan.values()}
    assert computing == set(product((1, 30, 120), (None, 0.005)))


def test_the_table_fits_and_ends_with_the_verdict():
    rows = [
        cost.Row("8 bits, lz4, 2 servers", link, Spread(0.3271, 0.32, 0.33), Spread(0.3, 0.29, 0.31), error, 9, 9)
        for link, error in (("1000 Mbit/s, 10 ms", 0.09), ("10 Mbit/s, 0 ms", -0.3), ("bare", 0.5))
    ]
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(cost.table(rows))
    shown = console.export_text()
    assert "…" not in shown
    for words in ("8 bits, lz4, 2 servers", "1000, 10", "327 [320, 330]", "-30%", "median error 19.5%, worst 30.0%"):
        assert words in shown
    assert "on the bare loopback: median error 50.0%" in shown
    assert set(cost.chart(rows).series) == {"predicted", "measured"}


def test_every_candidate_of_a_tuning_is_a_row_and_the_verdict_is_about_the_first(monkeypatch):
    def tune_it(problem, link, target, *, start, tried, watch):
        watch("probing", 0.5)
        times = [(1.0, 2.2), (1.5, 2.0), (None, None)]
        codecs = (ps.Uniform(4), ps.Exact(), ps.Sign())
        return Tuning(
            target,
            [
                Choice(replace(start, push=ps.Codec(codec, ps.ErrorFeedback())), said and 10, said, took, 0.9)
                for codec, (said, took) in zip(codecs, times, strict=True)
            ],
        )

    monkeypatch.setattr(tune, "tune", tune_it)
    told = []
    rows = list(tune.measure(features=20, watch=lambda text, share: told.append(share)))
    assert told == [0.25, 0.75]
    assert [row.place for row in rows] == [1, 2, 3, 1, 2, 3]
    assert [row.over_best for row in rows[:3]] == [pytest.approx(1.1), 1.0, None]
    assert base.to_plain(rows[2])["measured_s"] is None
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(tune.table(rows))
    shown = console.export_text()
    for text in ("1 Uniform(4), EF; 1 server", "20 Mbit/s, 1 ms: the first choice took 10%", "> 300"):
        assert text in shown
    assert len(tune.chart(rows).series["predicted"]) == 4
