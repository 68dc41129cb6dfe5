"""Schedules add up exactly, whoever carries them out."""

import numpy as np
import pytest

import minips as ps

RING, TREE, HALVING = ps.RingAllReduce(), ps.TreeAllReduce(), ps.HalvingDoubling()
CASES = [(RING, n) for n in range(1, 10)] + [(TREE, n) for n in range(1, 10)] + [(HALVING, 2**k) for k in range(5)]


def carry_out(exchange, values):
    """The values of each rank, an array of (workers, size), after the whole schedule; pieces sent by each rank."""
    workers, size = values.shape
    pieces = exchange.pieces(workers)
    bounds = [size * piece // pieces for piece in range(pieces + 1)]
    held, sent = values.copy(), [0] * workers
    for hops in zip(*(exchange.schedule(rank, workers) for rank in range(workers)), strict=True):
        before = held.copy()  # all send before anybody receives
        for rank, hop in enumerate(hops):
            sent[rank] += len(hop.sends)
            assert bool(hop.sends) == (hop.to is not None)
            assert bool(hop.receives) == (hop.source is not None)
            if hop.source is None:
                continue
            assert hops[hop.source] == hops[hop.source]._replace(to=rank, sends=hop.receives, adds=hop.adds)
            here = slice(bounds[hop.receives.start], bounds[hop.receives.stop])
            held[rank, here] = before[hop.source, here] + (before[rank, here] if hop.adds else 0)
    return held, sent


@pytest.mark.parametrize(("exchange", "workers"), CASES, ids=repr)
def test_a_schedule_adds_up_exactly_everywhere(exchange, workers):
    values = np.random.default_rng(workers).integers(-1000, 1000, (workers, 61))
    held, sent = carry_out(exchange, values)
    np.testing.assert_array_equal(held, np.tile(values.sum(axis=0), (workers, 1)))
    hops = len(exchange.schedule(0, workers))
    rounds = (workers - 1).bit_length()
    if exchange is TREE:
        assert (hops, sum(sent)) == (2 * rounds, 2 * (workers - 1))
        assert sent[0] == rounds
    else:
        assert sent == [2 * (workers - 1)] * workers  # pieces of S/n
        assert hops == (2 * (workers - 1) if exchange is RING else 2 * rounds)


@pytest.mark.parametrize("exchange", [RING, TREE, HALVING], ids=repr)
def test_nobody_is_beyond_the_last_rank(exchange):
    with pytest.raises(ValueError, match=r"the ranks are 0 to 3; got rank 4"):
        exchange.schedule(4, 4)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"exchange": HALVING, "workers": 6}, "wants a power of two of workers, got 6"),
        ({"consistency": ps.SSP()}, r"takes consistency=BSP\(backup=0\) only, got SSP"),
        ({"consistency": ps.ASP()}, r"consistency=BSP\(backup=0\) only, got ASP"),
        ({"consistency": ps.BSP(backup=1)}, r"only, got BSP\(backup=1\)"),
        ({"aggregator": ps.Median()}, r"takes aggregator=Mean\(\) only"),
        ({"servers": 2}, r"takes servers=1 only, got 2\. Use exchange=PS\(\) for that"),
        ({"pull": ps.Codec(quantizer="float16")}, r"takes pull=Codec\(.*only, got"),
        ({"push": ps.Codec(memory="momentumcorrection")}, "would add its momentum again"),
    ],
    ids=repr,
)
def test_a_config_refuses_what_only_a_server_can_do(fields, words):
    with pytest.raises(ValueError, match=words):
        ps.Config(**{"exchange": RING, **fields})


def test_an_exchange_may_be_a_name():
    assert [ps.Config(exchange=name).exchange for name in ps.names("exchange")] == [ps.PS(), RING, TREE, HALVING]
