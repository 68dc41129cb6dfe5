"""The map of codecs: arithmetic where links are all that costs, made-up stages where they are not, a few samples."""

from dataclasses import replace

import numpy as np
import pytest

import minips as ps
from minips import cost
from minips.cost.maps import _spread
from minips.machines.calibration import Calibration
from minips.machines.fit import Line

CODECS = {"exact": ps.Codec(), "half": ps.Codec(ps.Float16())}
FREE = Calibration(cores=64)
SLOW = replace(FREE, worker={"quantize": Line(0.0, 1e-6)})


def test_where_encoding_is_free_fewer_bytes_win_and_where_it_is_slow_they_do_below_the_break_even():
    free = cost.codec_map(CODECS, [1000, 10_000], [1e6, 1e9], calibrations={"exact": FREE, "half": FREE})
    assert (free.winners == 1).all()
    assert free.seconds.shape == (2, 2, 2)
    link = replace(ps.Config(workers=1), link=ps.Link(1e6, 0.0))
    value = 10_000
    one = cost.codec_map(
        CODECS,
        [value],
        np.geomspace(1e5, 1e9, 9),
        start=link,
        latency_s=0.0,
        calibrations={"exact": FREE, "half": SLOW},
    )
    sizes = [cost.message_nbytes(codec, {"w": np.zeros(value, np.float32)}) for codec in CODECS.values()]
    border = 8 * cost.break_even_bandwidth(*sizes, encode_s=value * 1e-6, decode_s=0.0)
    np.testing.assert_array_equal(one.winners[0], (one.bandwidths_bps < border).astype(int))
    assert set(one.winners[0]) == {0, 1}
    assert (one.samples, one.hits, one.regret) == ([], 0, 0.0)


def test_a_map_of_an_all_reduce_is_drawn_of_its_own_hops_and_one_of_epochs_of_a_few_steps():
    known = {"calibrations": {"exact": FREE}, "latency_s": 1e-3}
    start = ps.Config(workers=8, exchange=ps.RingAllReduce())
    found = cost.codec_map({"exact": ps.Codec()}, [100_000], [1e8], start=start, **known)
    assert found.seconds.item() == pytest.approx(cost.ring_allreduce_s(8, 4e5, 1e8 / 8, 1e-3))
    of_steps, of_epochs = (
        cost.codec_map({"exact": ps.Codec()}, [100_000], [1e8], start=ps.Config(**fields), **known)
        for fields in ({"steps": 7}, {"epochs": 2})
    )
    assert of_steps.seconds == of_epochs.seconds


@pytest.mark.soak
def test_samples_are_run_and_held_against_the_map():
    told = []
    found = cost.codec_map(
        CODECS,
        [200, 2000],
        [1e6, 1e7],
        start=ps.Config(workers=2, transport="inproc", optimizer=ps.SGD(lr=1e-3)),
        calibrations={"exact": FREE, "half": FREE},
        samples=2,
        engine="threads",
        progress=lambda text, share: told.append(share),
    )
    assert 1 <= len(found.samples) <= 4
    for sample in found.samples:
        assert sample.winner == min(sample.seconds, key=sample.seconds.get)
        assert set(sample.seconds) == set(CODECS)
    assert found.hits == sum(sample.winner == "half" for sample in found.samples)
    assert found.regret >= 0
    assert told == sorted(told)
    assert told[-1] < 1


@pytest.mark.parametrize("samples", [1, 4, 9])
def test_samples_are_spread_over_what_is_allowed(samples):
    allowed = np.ones((10, 12), bool)
    allowed[5:, :4] = False
    chosen = list(_spread(allowed, samples))
    assert all(allowed[point] for point in chosen)
    assert samples / 2 <= len(chosen) <= 2 * samples
    assert list(_spread(allowed, 0)) == list(_spread(~np.ones((3, 3), bool), 4)) == []
