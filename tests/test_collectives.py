"""Schedules add up exactly, whoever carries them out; and workers that carry them out agree with a server."""

import dataclasses
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import misfits
import multiprocess
import numpy as np
import pytest
from tap import tapped

import minips as ps
from minips import cli
from minips.core.reduction import AllReduceState
from minips.drivers.peer import Peer
from minips.stage import missing, stage_class
from minips.stages.transports.wire import CALL

RING, TREE, HALVING, TWO = ps.RingAllReduce(), ps.TreeAllReduce(), ps.HalvingDoubling(), ps.TwoShot()
ALL = [RING, TREE, HALVING, TWO]
CASES = [(one, n) for one in (RING, TREE, TWO) for n in range(1, 10)] + [(HALVING, 2**k) for k in range(5)]


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
        assert hops == (2 * rounds if exchange is HALVING else 2 * (workers - 1))


@pytest.mark.parametrize("exchange", ALL, ids=repr)
def test_nobody_is_beyond_the_last_rank(exchange):
    with pytest.raises(ValueError, match=r"the ranks are 0 to 3; got rank 4"):
        exchange.schedule(4, 4)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"exchange": HALVING, "workers": 6}, "needs a number of workers that is a power of two; got 6"),
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
    assert [ps.Config(exchange=name).exchange for name in ps.names("exchange")] == [ps.PS(), *ALL]


# One step of all ranks, encoded and decoded


def reductions(exchange, workers, codec, like):
    config = ps.Config(exchange=exchange, workers=workers, push=codec)
    draws = [np.random.default_rng([7, rank]) for rank in range(workers)]
    return [AllReduceState(config, rank, like, ps.Trace(), rng) for rank, rng in enumerate(draws)]


def reduce(ranks, step, gradients, endings=()):
    """The mean at each rank."""
    for rank, one in enumerate(ranks):
        one.begin(step, gradients[rank], rank in endings)
    for number in range(len(ranks[0].hops)):
        frames = [one.outgoing(number) for one in ranks]
        for one in ranks:
            if (source := one.hops[number].source) is not None:
                one.incoming(number, frames[source])
    return [one.mean() for one in ranks]


def some(workers, seed=0):
    rng = np.random.default_rng(seed)
    return [{"W": rng.normal(size=(5, 3)), "b": rng.normal(size=()), "e": np.zeros((0, 2))} for _ in range(workers)]


LOSSY = [
    ps.Codec(quantizer=ps.Uniform(bits=4), serializer="json"),
    ps.Codec(quantizer=ps.QSGD(), compressor="zlib"),
    ps.Codec(quantizer=ps.TopK(fraction=0.3), memory="errorfeedback"),
    ps.Codec(quantizer={"b": ps.Exact(), "*": ps.PowerSGD()}, memory="delta", serializer="pickle"),
]


@pytest.mark.parametrize("codec", [ps.Codec(), *LOSSY], ids=repr)
@pytest.mark.parametrize(("exchange", "workers"), [(RING, 1), (RING, 5), (TREE, 5), (HALVING, 8), (TWO, 5)], ids=repr)
def test_all_ranks_end_with_the_same_bits(exchange, workers, codec):
    gradients = some(workers)
    ranks = reductions(exchange, workers, codec, gradients[0])
    for step in range(3):
        means = reduce(ranks, step, gradients)
        assert len({tuple(g.tobytes() for g in mean.values()) for mean in means}) == 1
        assert {name: (g.shape, g.dtype) for name, g in means[0].items()} == {
            name: (g.shape, g.dtype) for name, g in gradients[0].items()
        }
    exact = np.mean([gradient["W"] for gradient in gradients], axis=0)
    if codec == ps.Codec():
        np.testing.assert_allclose(means[0]["W"], exact, rtol=1e-12)


@pytest.mark.parametrize("exchange", ALL, ids=repr)
def test_what_error_feedback_holds_back_comes_later(exchange):
    gradients = some(4)
    ranks = reductions(exchange, 4, ps.Codec(quantizer=ps.TopK(fraction=0.25), memory="errorfeedback"), gradients[0])
    exact = np.mean([gradient["W"] for gradient in gradients], axis=0)
    off = np.cumsum([reduce(ranks, step, gradients)[0]["W"] - exact for step in range(200)], axis=0)
    assert np.abs(off[0]).max() > 0.1
    assert np.abs(off[-1]).max() < 1.5 * np.abs(off[:50]).max()  # what is held stays bounded


@pytest.mark.parametrize("exchange", ALL, ids=repr)
def test_delta_corrects_its_errors(exchange):
    gradients = some(4)
    ranks = reductions(exchange, 4, ps.Codec(quantizer=ps.Uniform(bits=4), memory="delta"), gradients[0])
    exact = np.mean([gradient["W"] for gradient in gradients], axis=0)
    off = [np.abs(reduce(ranks, step, gradients)[0]["W"] - exact).max() for step in range(20)]
    assert off[0] > 1e-2
    assert off[-1] < 1e-6


@pytest.mark.parametrize(("exchange", "workers"), [case for case in CASES if case[1] > 1], ids=repr)
def test_what_one_rank_knows_all_know_in_the_end(exchange, workers):
    gradients = some(workers)
    ranks = reductions(exchange, workers, ps.Codec(), gradients[0])
    reduce(ranks, 0, gradients)
    assert not any(one.ending for one in ranks)
    for knows in range(workers):
        reduce(ranks, knows + 1, gradients, endings=(knows,))
        assert all(one.ending for one in ranks)


@pytest.mark.parametrize(("workers", "least"), [(4, 1.05), (8, 1.4), pytest.param(16, 1.8, marks=pytest.mark.soak)])
def test_two_shots_err_less_than_a_ring(workers, least):
    """By √(n(n+1)/2 / (2n−1)), for independent gradients: 1.20, 1.55, 2.09."""

    def error(exchange, gradients):
        exact = np.mean([gradient["w"] for gradient in gradients], axis=0)
        ranks = reductions(exchange, workers, ps.Codec(ps.Uniform(bits=8)), gradients[0])
        return np.linalg.norm(reduce(ranks, 0, gradients)[0]["w"] - exact)

    ratios = []
    for draw in range(20):
        rng = np.random.default_rng([workers, draw])
        gradients = [{"w": rng.normal(size=4000)} for _ in range(workers)]
        ratios.append(error(RING, gradients) / error(TWO, gradients))
    assert np.median(ratios) >= least


def test_an_owners_piece_is_exact_in_its_sum_and_what_all_keep_is_what_was_sent():
    little = 2.0**-20  # lost beside 1 in half floats, and not by itself
    gradients = [{"w": np.full(4, 1 + little)}, {"w": np.array([-1.0, 1.0, -1.0, 1.0])}]
    means = reduce(reductions(TWO, 2, ps.Codec(ps.Float16()), gradients[0]), 0, gradients)
    np.testing.assert_array_equal([mean["w"] for mean in means], [[little / 2, 1, 0, 1]] * 2)  # rank 0 owns two


def test_a_message_that_belongs_elsewhere_is_refused():
    gradients = some(3)
    one, two, _ = reductions(RING, 3, ps.Codec(), gradients[0])
    one.begin(0, gradients[0])
    two.begin(1, gradients[1])
    with pytest.raises(ValueError, match="Expected hop 0 of step 1, got hop 0 of step 0"):
        two.incoming(0, one.outgoing(0))
    two.begin(0, gradients[1])
    with pytest.raises(ValueError, match=r"Expected the pieces 0/W, 0/e; got 1/W"):
        two.incoming(0, two.outgoing(0))
    other = reductions(RING, 3, ps.Codec(), {**gradients[0], "W": np.zeros((5, 3), "f4")})[0]
    other.begin(0, {**gradients[0], "W": np.zeros((5, 3), "f4")})
    with pytest.raises(ValueError, match=r"Piece 0 of 'W' must be float64 of shape .*; got float32"):
        two.incoming(0, other.outgoing(0))


# Runs


PROBLEM = ps.LinearRegression(*misfits.rows())
BASE = ps.Config(
    transport="inproc", workers=3, steps=6, batch_size=8, exchange=RING, optimizer=ps.Adam(lr=0.05), timeout_s=20.0
)
TCP = dataclasses.replace(BASE, transport="tcp")
THREADS, PROCESSES = ps.Threads(), ps.Processes()
TRANSPORTS = [name for name in ps.names("transport") if not missing(stage_class("transport", name))]
RUNS = [
    *((THREADS, RING, "inproc", n) for n in (1, 2, 5, 9)),
    *((THREADS, TREE, "inproc", n) for n in (1, 2, 6)),
    *((THREADS, HALVING, "inproc", n) for n in (1, 2, 8)),
    *((THREADS, TWO, "inproc", n) for n in (1, 2, 6)),
    *((THREADS, exchange, transport, 4) for exchange in (RING, TWO) for transport in TRANSPORTS),
    *((THREADS, exchange, transport, 4) for exchange in (TREE, HALVING) for transport in ("inproc", "tcp")),
    (PROCESSES, RING, "tcp", 3),
    (PROCESSES, RING, "shm", 2),
    (PROCESSES, TREE, "pipe", 3),
    (PROCESSES, HALVING, "tcp", 4),
    (PROCESSES, TWO, "tcp", 3),
]


def assert_close(one, other):
    for name in one:
        np.testing.assert_allclose(one[name], other[name], rtol=1e-10, strict=True)


@pytest.mark.parametrize(("engine", "exchange", "transport", "workers"), RUNS, ids=repr)
def test_a_run_is_that_of_a_parameter_server(engine, exchange, transport, workers):
    config = dataclasses.replace(BASE, exchange=exchange, transport=transport, workers=workers)
    run = ps.train(PROBLEM, config, engine=engine)
    server = ps.train(PROBLEM, dataclasses.replace(config, exchange=ps.PS(), transport="inproc"), engine=THREADS)
    assert_close(run.params, server.params)
    assert [step for _, step, _ in run.losses] == [step for _, step, _ in server.losses]
    np.testing.assert_allclose([loss for *_, loss in run.losses], [loss for *_, loss in server.losses], rtol=1e-10)
    assert (run.updates, run.staleness, run.late, run.events) == (6 * workers, {0: 6 * workers}, 0, [])
    assert (len(run.replicas), len(set(run.replicas))) == (workers, 1)
    assert run.requantization_error < 1e-12
    assert server.requantization_error is None
    assert multiprocess.active_children() == []


@pytest.mark.parametrize("engine", [THREADS, PROCESSES, ps.Simulated()], ids=repr)
def test_two_shots_end_with_the_bits_of_a_server(engine):
    config = dataclasses.replace(TCP, workers=4, steps=30)
    digits = ps.SoftmaxRegression(*ps.datasets.digits())
    two, server = (
        ps.train(digits, dataclasses.replace(config, exchange=one), engine=engine).params for one in (TWO, ps.PS())
    )
    assert {name: p.tobytes() for name, p in two.items()} == {name: p.tobytes() for name, p in server.items()}


@pytest.mark.parametrize("transport", ["tcp", "pipe", "shm", "inproc"])
def test_large_messages_cross_each_other(transport):
    rng = np.random.default_rng(0)
    problem = ps.LinearRegression(rng.normal(size=(6, 300_000)), rng.normal(size=6))
    config = dataclasses.replace(BASE, transport=transport, steps=2, optimizer=ps.SGD(lr=1e-7))
    run = ps.train(problem, config, engine=THREADS)
    nbytes = sum(x.nbytes for x in run.params.values())
    sent = 2 * 3 * 2 * 2 / 3 * nbytes  # steps, workers, 2(n−1)/n
    assert sent < run.bytes_sent < sent + 24 * 1000
    assert run.bytes_received == run.bytes_sent


@pytest.mark.parametrize("exchange", ALL, ids=repr)
def test_a_lossy_codec_errs_at_every_hop_and_the_run_says_how_much(exchange):
    problem = ps.SoftmaxRegression(*ps.datasets.synthetic(rows=200, features=40, classes=5))
    config = dataclasses.replace(BASE, workers=4, steps=8, batch_size=None, exchange=exchange)
    errors = {}
    for bits in (2, 4, 8):
        run = ps.train(problem, dataclasses.replace(config, push={"quantizer": ps.Uniform(bits=bits)}), engine=THREADS)
        errors[bits] = run.requantization_error
        assert len(set(run.replicas)) == 1
    assert 2 > errors[2] > 3 * errors[4] > 9 * errors[8] > 0
    assert json.loads(json.dumps(run.to_dict()))["requantization_error"] == errors[8]
    assert "requantization error" in run.summary()


def test_a_run_repeats_with_its_seed():
    config = dataclasses.replace(BASE, push={"quantizer": "qsgd"})
    digests = [
        ps.train(PROBLEM, dataclasses.replace(config, seed=seed), engine=THREADS).replicas[0] for seed in (1, 1, 2)
    ]
    assert digests[0] == digests[1] != digests[2]


def test_overlap_computes_from_parameters_that_are_one_step_older():
    config = dataclasses.replace(BASE, overlap=True)
    run = ps.train(PROBLEM, config, engine=THREADS)
    server = ps.train(PROBLEM, dataclasses.replace(config, exchange=ps.PS()), engine=THREADS)
    assert_close(run.params, server.params)
    assert run.staleness == server.staleness == {0: 3, 1: 15}


def test_the_spans_are_those_of_a_servers_run():
    run = ps.train(PROBLEM, TCP, engine=THREADS)
    assert {span.who for span in run.trace} == {"worker 0", "worker 1", "worker 2"}
    assert set(run.trace.seconds()) == {
        *("compute", "quantize", "serialize", "compress", "transfer", "wait"),
        *("decompress", "deserialize", "dequantize", "aggregate", "apply"),
    }
    assert sum(run.trace.seconds("worker 1").values()) <= run.seconds
    assert {span.step for span in run.trace} == set(range(6))


def test_progress_is_told():
    heard = []
    config = dataclasses.replace(BASE, steps=20, delays=ps.Delays(seconds=0.02))
    run = ps.train(PROBLEM, config, engine=THREADS, progress=heard.append)
    assert [each.applied for each in heard] == sorted(each.applied for each in heard)
    assert heard[-1].applied == heard[-1].updates == 60
    assert [row[1:] for row in heard[-1].losses] == [row[1:] for row in run.losses]
    assert len({each.applied for each in heard}) > 3


def test_a_link_is_honoured():
    link = ps.Link(bandwidth_bps=1e5, latency_s=0.01)
    run = ps.train(PROBLEM, dataclasses.replace(TCP, steps=2, link=link), engine=THREADS)
    nbytes = sum(x.nbytes for x in run.params.values())
    assert run.seconds >= 2 * ps.cost.ring_allreduce_s(3, nbytes, link.bandwidth_bps / 8, link.latency_s)


@pytest.mark.parametrize(("engine", "overlap"), [(THREADS, False), (THREADS, True), (PROCESSES, False)], ids=repr)
def test_an_early_stop_ends_all_workers_at_the_same_step(engine, overlap):
    stop = threading.Event()
    delays = ps.Delays(seconds=0.002, slow={1: 3.0})
    config = dataclasses.replace(TCP, steps=100_000, delays=delays, overlap=overlap)
    run = ps.train(PROBLEM, config, engine=engine, stop=stop, progress=lambda told: told.applied and stop.set())
    assert run.stopped
    assert 0 < run.updates == 3 * len(run.losses) < 300_000
    assert len(set(run.replicas)) == 1
    assert multiprocess.active_children() == []


@pytest.mark.parametrize("engine", [THREADS, PROCESSES], ids=repr)
def test_a_run_that_is_stopped_before_it_begins_has_its_first_parameters(engine):
    run = ps.train(PROBLEM, TCP, engine=engine, stop=lambda: True)
    assert (run.stopped, run.updates, run.events, run.requantization_error) == (True, 0, [], None)
    assert_close(run.params, PROBLEM.init(None))


@pytest.mark.parametrize(
    ("engine", "problem", "words"),
    [
        (THREADS, misfits.Raises(workers=3), "ArithmeticError: the dog ate my rows"),
        (PROCESSES, misfits.Raises(workers=3), "ArithmeticError: the dog ate my rows"),
        (THREADS, misfits.Diverges(workers=3, at=1), "NonFiniteError: The gradient of 'w' holds NaN"),
        (THREADS, misfits.WrongShape(workers=3), "ValueError: The gradient of 'w' must be float64 of shape"),
    ],
    ids=["raises", "raises in a process", "nan from the start", "wrong shape"],
)
def test_the_worker_that_fails_is_the_one_that_is_named(engine, problem, words):
    with pytest.raises(RuntimeError, match=f"worker 1 failed: {words}"):
        ps.train(problem, TCP, engine=engine)
    assert multiprocess.active_children() == []


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("engine", [THREADS, PROCESSES, ps.Simulated()], ids=repr)
def test_a_run_that_diverges_ends_at_every_rank_with_the_parameters_before_it(engine, overlap):
    config = dataclasses.replace(TCP, overlap=overlap)
    run = ps.train(misfits.Diverges(workers=3), config, engine=engine)
    assert run.diverged.startswith("At step 2 of worker 1: The gradient of 'w' holds NaN or infinity")
    assert (run.updates, run.stopped, run.events) == (6, False, [])
    assert len(set(run.replicas)) == 1
    two = ps.train(misfits.Diverges(workers=3), dataclasses.replace(config, steps=2), engine=ps.Simulated())
    assert run.replicas[0] == two.replicas[0]
    assert multiprocess.active_children() == []


@pytest.mark.parametrize("exchange", ["ring", "tree", "twoshot"])
def test_a_sum_or_a_step_past_all_numbers_ends_the_run_at_every_rank(exchange):
    class Grows(ps.Problem):
        """Half floats whose gradients are finite, and whose sum soon is not."""

        def __init__(self, size, growth):
            super().__init__(np.zeros((4, 1)), np.zeros(4))
            self.size, self.growth = size, growth

        def init(self, rng):
            return {"w": np.zeros(8, "f2")}

        def loss_and_gradient(self, params, rows=None):
            return 0.0, {"w": np.full(8, -self.size, "f2") - np.float16(self.growth) * params["w"]}

    ends = (9000, 1, 2.0, "The sum of the gradients"), (1, 0, 6e4, "would make the parameter 'w'")
    for size, growth, lr, words in ends:
        config = dataclasses.replace(BASE, workers=4, steps=50, exchange=exchange, optimizer=ps.SGD(lr=lr))
        for engine in (THREADS, ps.Simulated()):
            run = ps.train(Grows(size, growth), config, engine=engine)
            assert words in run.diverged
            assert np.isfinite(run.params["w"]).all()
            assert len(set(run.replicas)) == 1


def test_no_sum_is_complete_without_a_worker_that_dies():
    words = "worker 1 ended before its work was done: its process was killed by SIGKILL"
    with pytest.raises(RuntimeError, match=words):
        ps.train(misfits.Kills(workers=3), dataclasses.replace(TCP, transport="pipe"), engine=PROCESSES)
    assert multiprocess.active_children() == []


def test_a_worker_that_does_not_send_is_waited_for_only_so_long():
    config = dataclasses.replace(BASE, timeout_s=0.3, delays=ps.Delays(seconds=0.001, slow={1: 1500.0}))
    with pytest.raises(
        RuntimeError, match=r"worker \d failed: TimeoutError: Worker \d waited 0.3 seconds for hop \d of"
    ):
        ps.train(PROBLEM, config, engine=THREADS)


def test_processes_cannot_meet_in_process():
    with pytest.raises(ValueError, match=r"Processes\(\) cannot use InProc\(\), which does not reach"):
        ps.train(PROBLEM, BASE, engine=PROCESSES)


def test_replicas_that_differ_are_an_error():
    with pytest.raises(RuntimeError, match="The replicas differ at the end of the run: worker 1 does not have"):
        ps.train(PROBLEM, dataclasses.replace(BASE, optimizer=misfits.GoesItsOwnWay()), engine=THREADS)


def test_a_peer_takes_calls_from_workers_only():
    like = PROBLEM.init(None)
    with Peer(TCP, 0, like, "token") as peer, TCP.shaped_transport().connect(peer.address, "token") as channel:
        for frames in ([], [b"one"], [b"3"], [b"-1"]):
            with pytest.raises(ValueError, match="Expected the number of a worker, 0 to 2"):
                channel.call(frames).result(5)
        assert channel.call([b"2"]).result(5) == []
        with pytest.raises(ValueError, match="must start with the time at which it was sent"):
            channel.call([b"now", b"and here"]).result(5)


@pytest.mark.parametrize("exchange", [RING, TREE, TWO], ids=repr)
def test_workers_count_the_frames_that_a_tap_sees(exchange):
    like = PROBLEM.init(None)
    with ExitStack() as stack:
        peers = [
            stack.enter_context(Peer(dataclasses.replace(TCP, exchange=exchange), rank, like, "token"))
            for rank in range(3)
        ]
        taps = stack.enter_context(tapped(*(peer.address for peer in peers)))
        for peer in peers:
            peer.connect([tap.address for tap in taps])
        pool = stack.enter_context(ThreadPoolExecutor(3))
        list(pool.map(lambda peer: peer.mean(0, like), peers))
        came = [sum(sum(sizes) for tag, sizes in tap.messages() if tag == CALL) for tap in taps]
        assert [peer.bytes_received for peer in peers] == came
        assert sum(peer.bytes_sent for peer in peers) == sum(came)


def test_the_command_line_knows_the_exchange(capsys):
    options = ["--exchange", "ring", "--workers", "2", "--steps", "2", "--transport", "inproc", "--engine", "threads"]
    assert cli.main(["train", "--data", "synthetic", *options]) == 0
    assert "RingAllReduce()" in capsys.readouterr().out
