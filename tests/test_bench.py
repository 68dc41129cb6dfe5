"""The benchmarks measure what they say; their figures are for people, not for tests."""

import numpy as np

import minips as ps
from minips import bench
from minips.stage import missing, stage_class


def test_every_quantizer_has_a_row():
    rows = {row.quantizer: row for row in bench.codecs(values=10_000)}
    assert list(rows) == [name for name in ps.names("quantizer") if not missing(stage_class("quantizer", name))]
    bits = {name: row.bits_per_value for name, row in rows.items()}
    assert (bits["exact"], bits["float16"], bits["bfloat16"]) == (32, 16, 16)
    assert 8 < bits["uniform"] < 8.1
    assert 1 < bits["sign"] < 1.1
    assert 1.6 < bits["ternary"] < 1.7
    assert all(row.encode > 0 and row.decode > 0 for row in rows.values())
    steps = {name: row.steps for name, row in rows.items()}
    assert steps["exact"] is not None
    assert steps["exact"] <= steps["topk"] <= bench.STEPS
    assert rows["topk"].steps_with_feedback < steps["topk"]
    assert steps["twobit"] is None  # nothing of these gradients reaches the threshold
    shown = bench.table(list(rows.values()))
    assert shown.row_count == len(rows)


def test_rounds_are_those_of_a_run():
    problem = ps.SoftmaxRegression(*ps.datasets.synthetic(rows=100, classes=3))
    config = ps.Config(workers=2, steps=5, transport="inproc", push=ps.Codec(ps.Uniform(4), ps.ErrorFeedback()))
    *_, last = bench.rounds(problem, config)
    run = ps.train(problem, config, engine="threads")
    for name, p in run.params.items():
        np.testing.assert_array_equal(p, last[name])
