"""The simulated engine against real runs (to the bit), against closed forms, and against what probability says."""

import math
import subprocess
import sys
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest

import minips as ps
from minips import cost
from minips.machines.fit import Line
from minips.results.trace import DECODE, ENCODE, UPDATE

SOFTMAX = ps.SoftmaxRegression(*ps.datasets.synthetic(rows=120, classes=3))
TOP = ps.Codec(ps.TopK(0.2), ps.ErrorFeedback())
NOISY = ps.Codec(ps.QSGD(), compressor=ps.Zlib())
NOTHING = cost.Calibration()
LINK = ps.Link(bandwidth_bps=8e6, latency_s=2e-3)


class Still(ps.Problem):
    """So many values whose gradient is always zero: there is nothing but the exchange."""

    def __init__(self, values, rows=64):
        super().__init__(np.zeros((rows, 1)), np.zeros(rows))
        self.values = values

    def init(self, rng):
        return {"w": np.zeros(self.values, "f4")}

    def loss_and_gradient(self, params, rows=None):
        return 0.0, {"w": np.zeros(self.values, "f4")}


class Quadratic(Still):
    """λ|w|²/2, from one."""

    curvature = 0.5

    def init(self, rng):
        return {"w": np.ones(self.values)}

    def loss_and_gradient(self, params, rows=None):
        w = params["w"]
        return self.curvature * float(w @ w) / 2, {"w": self.curvature * w}


def simulate(problem, engine=None, **fields):
    return ps.train(problem, ps.Config(**fields), engine=engine or ps.Simulated())


def same_bits(one, other):
    return one.keys() == other.keys() and all(one[name].tobytes() == other[name].tobytes() for name in one)


def steps_s(run):
    """Seconds from each step to the next."""
    return np.diff([seconds for seconds, _, _ in run.losses])


# The same run


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"push": TOP, "pull": ps.Codec(ps.Sign(), ps.ErrorFeedback()), "servers": 2, "optimizer": "adam"},
        {"push": NOISY, "pull": NOISY, "overlap": True},
        {"aggregator": "median", "accumulate": 2, "batch_size": 4},
        {"exchange": "ring", "push": TOP},
        {"exchange": "tree", "overlap": True},
        {"exchange": "halvingdoubling", "push": NOISY},
        {"exchange": "twoshot", "push": TOP},
    ],
    ids=str,
)
def test_a_bsp_run_is_the_real_one_to_the_bit_and_to_the_byte(fields):
    config = ps.Config(workers=4, steps=6, transport="inproc", **fields)
    simulated = ps.train(SOFTMAX, replace(config, link=LINK), engine="simulated")
    real = ps.train(SOFTMAX, config, engine="threads")
    assert same_bits(simulated.params, real.params)
    assert [row[1:] for row in simulated.losses] == [row[1:] for row in real.losses]
    assert simulated.staleness == real.staleness
    assert sorted(simulated.grants) == sorted(real.grants)
    assert (simulated.bytes_sent, simulated.bytes_received) == (real.bytes_sent, real.bytes_received)
    assert (simulated.requantization_error, simulated.replicas) == (real.requantization_error, real.replicas)


@pytest.mark.parametrize("consistency", ["bsp", "ssp", "asp", ps.BSP(backup=1)])
def test_the_same_seed_gives_the_same_run_and_another_seed_another(consistency):
    def run(seed):
        engine = ps.Simulated(
            cost.TwoRacks(1e8, uplink_bps=1e7, loss=0.01),
            compute_s=0.01,
            exponential=True,
            traffic=[cost.Traffic("worker 0", "worker 3", rate_bps=5e6)],
        )
        return simulate(SOFTMAX, engine, workers=4, servers=2, steps=8, push=NOISY, consistency=consistency, seed=seed)

    one, again, other = run(0), run(0), run(1)
    assert list(one.trace) == list(again.trace)
    assert same_bits(one.params, again.params)
    assert (one.losses, one.grants, one.seconds) == (again.losses, again.grants, again.seconds)
    assert list(one.trace) != list(other.trace)


# Closed forms


BYTES_PER_S = LINK.bandwidth_bps / 8


@pytest.mark.parametrize("workers", [2, 4, 8, 16, pytest.param(64, marks=pytest.mark.soak)])
@pytest.mark.parametrize(
    ("exchange", "formula"),
    [
        ("ring", cost.ring_allreduce_s),
        ("tree", cost.tree_allreduce_s),
        ("halvingdoubling", cost.halving_doubling_s),
        ("twoshot", cost.two_shot_allreduce_s),
        ("ps", cost.parameter_server_s),
    ],
)
def test_an_exchange_takes_what_its_closed_form_says(exchange, formula, workers):
    values = 8_000 * workers if exchange != "ps" else 20_000  # the smallest message is large beside its header
    run = simulate(Still(values), workers=workers, steps=2, exchange=exchange, link=LINK)
    [seconds] = steps_s(run)
    assert seconds == pytest.approx(formula(workers, 4 * values, BYTES_PER_S, LINK.latency_s), rel=0.01)


@pytest.mark.parametrize("workers", [4, pytest.param(16, marks=pytest.mark.soak)])
def test_two_shots_of_8_mb_take_what_the_closed_form_says(workers):
    [seconds] = steps_s(simulate(Still(2_000_000), workers=workers, steps=2, exchange="twoshot", link=LINK))
    assert seconds == pytest.approx(cost.two_shot_allreduce_s(workers, 8e6, BYTES_PER_S, LINK.latency_s), rel=0.01)


@pytest.mark.parametrize(("workers", "servers"), [(1, 2), (2, 2), (2, 4), (4, 2), (8, 4), (16, 4), (64, 8)])
def test_several_servers_share_what_one_would_carry(workers, servers):
    run = simulate(Still(servers * 20_000), workers=workers, servers=servers, steps=2, link=LINK)
    [seconds] = steps_s(run)
    expected = cost.parameter_server_s(workers, servers * 80_000, BYTES_PER_S, LINK.latency_s, servers)
    assert seconds == pytest.approx(expected, rel=0.01)


def test_a_ring_of_links_is_a_ring_all_reduces_own_network():
    engine = ps.Simulated(cost.Ring(LINK.bandwidth_bps, LINK.latency_s))
    [seconds] = steps_s(simulate(Still(80_000), engine, workers=8, steps=2, exchange="ring"))
    assert seconds == pytest.approx(cost.ring_allreduce_s(8, 320_000, BYTES_PER_S, LINK.latency_s), rel=0.01)


def test_a_thin_uplink_a_graph_of_ones_own_and_others_traffic_hold_an_exchange_up():
    def seconds(topology, *traffic, exchange="ps"):
        engine = ps.Simulated(topology, traffic=traffic)
        return steps_s(simulate(Still(20_000), engine, workers=4, steps=2, exchange=exchange))[0]

    star = cost.Star(8e6, 1e-3)
    thin = cost.TwoRacks(8e6, 0.0, uplink_bps=8e5)
    # The two workers of the other rack push and pull 80 kB each over 100 kB/s; the others are done sooner.
    assert seconds(thin) == pytest.approx(2 * 2 * 0.8, rel=0.01)
    assert seconds(star.graph(4, 1)) == seconds(star)
    busy = seconds(star, cost.Traffic("worker 3", "server 0"))
    assert busy == pytest.approx(seconds(star) + 0.08, rel=0.01)  # five flows in place of four, until all have come


# Probability


@pytest.mark.parametrize("backup", [0, 1, 3])
def test_a_round_takes_as_long_as_its_last_worker_that_is_waited_for(backup):
    delays, consistency = ps.Delays(1.0, exponential=True), ps.BSP(backup=backup)
    run = simulate(Still(1), workers=8, steps=50, delays=delays, consistency=consistency)
    rounds = math.ceil(50 * 8 / (8 - backup))
    drawn = [sorted(delays.of(worker, clock, 0) for worker in range(8)) for clock in range(rounds)]
    assert run.seconds == pytest.approx(sum(times[7 - backup] for times in drawn))


@pytest.mark.soak
@pytest.mark.parametrize("backup", [0, pytest.param(2, marks=pytest.mark.soak)])
def test_rounds_of_exponential_compute_times_average_the_order_statistic(backup):
    """The (n − b)-th smallest of n exponential times has the mean H(n) − H(b); rounds are independent."""
    engine, consistency = ps.Simulated(compute_s=1.0, exponential=True), ps.BSP(backup=backup)
    run = simulate(Still(1), engine, workers=8, steps=1500, consistency=consistency)
    rounds = run.updates / (8 - backup)
    assert run.seconds / rounds == pytest.approx(cost.exponential_round_s(1.0, 8, backup), rel=0.02)


@pytest.mark.soak
def test_a_straggler_that_cannot_give_up_computes_the_next_round_late():
    """Without `abandon`: exponential times forget, so the state is how many are in time and how many are behind."""

    def mean(fresh, behind, wanted):
        if not wanted:
            return 0.0
        total = fresh + behind
        seconds = 1 / total + fresh / total * mean(fresh - 1, behind, wanted - 1)
        return seconds + (behind / total * mean(fresh + 1, behind - 1, wanted) if behind else 0.0)

    engine = ps.Simulated(compute_s=1.0, exponential=True, abandon=False)
    run = simulate(Still(1), engine, workers=8, steps=1500, consistency=ps.BSP(backup=1))
    assert run.seconds / (run.updates / 7) == pytest.approx(mean(7, 1, 7), rel=0.02)
    assert mean(7, 1, 7) > 1.1 * cost.exponential_round_s(1.0, 8, 1)


@pytest.mark.soak
def test_asynchronous_updates_arrive_as_often_as_all_workers_together_compute():
    delays = ps.Delays(seconds=1.0, exponential=True)
    run = simulate(Still(1), workers=8, steps=1500, consistency="asp", delays=delays)
    assert run.seconds / run.updates == pytest.approx(cost.exponential_update_s(1.0, 8), rel=0.02)


# A constant delay


@pytest.mark.parametrize("versions", [0, 1, 2, *(pytest.param(age, marks=pytest.mark.soak) for age in (3, 4)), 5])
def test_descent_with_a_constant_delay_is_stable_up_to_the_limit_and_no_further(versions):
    """w ← w − ηλ·w(τ versions ago) is stable iff ηλ < 2 sin(π / (2(2τ + 1)))."""
    limit = cost.asynchronous_lr_limit(versions, Quadratic.curvature)

    def last(lr):
        engine = ps.Simulated(delay_versions=versions)
        fields = {"workers": 1, "steps": 800, "consistency": "asp", "optimizer": ps.SGD(lr=lr)}
        run = simulate(Quadratic(1), engine, **fields)
        assert run.staleness == {age: 1 for age in range(versions)} | {versions: 800 - versions}
        return max(loss for _, _, loss in run.losses[-40:])

    first = Quadratic.curvature / 2
    assert last(0.97 * limit) < first / 100
    assert last(1.03 * limit) > first * 100


# Time


def test_computing_takes_what_the_engine_says_and_no_less_than_the_delays():
    slow = ps.Delays(seconds=1.0, slow={1: 3.0})
    assert simulate(SOFTMAX, ps.Simulated(compute_s=2.0), workers=2, steps=5).seconds == 10.0
    assert simulate(SOFTMAX, ps.Simulated(compute_s=2.0), workers=2, steps=5, accumulate=3).seconds == 30.0
    assert simulate(SOFTMAX, ps.Simulated(compute_s=2.0), workers=2, steps=5, delays=slow).seconds == 15.0
    run = simulate(SOFTMAX, workers=2, steps=5, delays=slow, consistency="asp")
    assert run.seconds == 8.0  # worker 0 makes eight of the ten updates
    assert sum(span.name == "compute" and span.who == "worker 0" for span in run.trace) == 8
    run = simulate(SOFTMAX, workers=2, steps=5, delays=slow, consistency=ps.BSP(backup=1))
    assert run.seconds == 10.0
    assert run.late > 0


def test_spans_add_up_to_the_time_of_every_worker():
    for fields in ({}, {"servers": 2}, {"exchange": "ring"}, {"consistency": "ssp"}):
        run = simulate(SOFTMAX, ps.Simulated(compute_s=0.01), workers=4, steps=20, link=LINK, **fields)
        names = run.trace.seconds("worker 2")
        assert names.keys() <= {"compute", "transfer", "wait"}
        if fields != {"servers": 2}:  # whose messages travel side by side
            assert sum(names.values()) == pytest.approx(run.seconds, rel=0.05)


def test_calibrated_stages_take_their_time_one_after_the_other_at_each_node():
    calibration = cost.Calibration(
        worker={name: Line(1.0) for name in ("quantize", "serialize", "deserialize", "dequantize")},
        server={name: Line(10.0) for name in ("deserialize", "aggregate", "apply", "serialize")},
        worker_rest=Line(6.0),
        server_rest=Line(100.0),
        idle=Line(2000.0),
        hop_rest=Line(8.0),
        hop_idle=Line(3000.0),
        gradient=Line(1e5, 1e3),
        together=2,
    )
    config = {"workers": 2, "steps": 1, "batch_size": 30}
    run = simulate(SOFTMAX, ps.Simulated(calibration=calibration), **config)
    # Two pulls come in, and the first answer is encoded and goes out, travels and is decoded.
    first = 3 + 1000 + 2 * 50 + (10 + 50) + 1000 + (3 + 2)
    # A gradient; encode; the way; then the server is busy: two pushes come in and are decoded, and make a round.
    assert run.losses[0][0] == first + (1e5 + 30e3) + (2 + 3) + 1000 + 2 * (50 + 10) + (10 + 10)
    assert run.trace.seconds("server")["serialize"] == 20.0  # two versions
    assert simulate(SOFTMAX, ps.Simulated(calibration=calibration, compute_s=0.0), **config).seconds < 5e3

    run = simulate(SOFTMAX, ps.Simulated(calibration=calibration, compute_s=0.0), **config, exchange="ring")
    # Encode a piece; the way, with half of a hop's rest at either end; decode it as a server does, and add half of a
    # round's aggregate; encode, the way, decode; update.
    assert run.seconds == 2 + (4 + 3000 + 4) + (10 + 5) + 2 + (4 + 3000 + 4) + 10 + (5 + 10)


@pytest.mark.parametrize("overlap", [False, True], ids=["in turn", "overlap"])
@pytest.mark.parametrize(
    "fields",
    [
        {"workers": 1},
        {},
        {"servers": 2},
        {"exchange": "ring"},
        {"exchange": "tree"},
        {"exchange": "halvingdoubling"},
        {"exchange": "ring", "link": ps.Link(1e9, 1e-3)},
    ],
    ids=str,
)
def test_with_one_calibration_a_step_takes_what_is_predicted_of_it(fields, overlap):
    calibration = cost.Calibration(
        worker={name: Line(2e-5, 1e-9) for name in (*ENCODE, *DECODE)},
        server={name: Line(1e-5, 1e-9) for name in (*ENCODE, *DECODE, *UPDATE)},
        worker_rest=Line(2e-4),
        server_rest=Line(1.5e-4),
        idle=Line(1e-4),
        hop_rest=Line(8e-5, 1e-9),
        hop_idle=Line(6e-5),
        message=Line(4e-5),
        gradient=Line(3e-4),
        cores=64,
        problem=cost.problem_words(SOFTMAX),
    )
    config = ps.Config(**{"workers": 4, "steps": 30, "overlap": overlap, **fields})
    told = cost.predict(SOFTMAX, config, calibration).seconds_per_step
    run = ps.train(SOFTMAX, config, engine=ps.Simulated(calibration=calibration))
    assert run.seconds_per_step == pytest.approx(told, rel=1e-3)


@pytest.mark.parametrize("exchange", ["ps", "ring"])
def test_a_run_can_be_watched_and_stopped(exchange):
    told, asked = [], iter([False] * 10)
    config, engine = ps.Config(workers=2, steps=50, exchange=exchange), ps.Simulated(compute_s=1.0)
    run = ps.train(SOFTMAX, config, engine=engine, progress=told.append)
    assert (run.stopped, told[-1].applied, told[-1].losses) == (False, 100, run.losses)
    run = ps.train(SOFTMAX, config, engine=engine, stop=lambda: next(asked, True))
    assert run.stopped
    assert 10 <= run.losses[-1][1] <= 12


def test_the_comparison_with_real_runs_has_a_row_for_each_consistency():
    told, config = [], ps.Config(workers=3, steps=2, transport="inproc", delays=ps.Delays(1e-3, slow={1: 2.0}))
    rows = cost.against_measured(SOFTMAX, config, engine=ps.Threads(), calibration=NOTHING, report=told.append)
    assert [row.consistency for row in rows] == [ps.BSP(), ps.SSP(), ps.ASP(), ps.BSP(backup=1)]
    assert told == rows
    assert rows[0].simulated_s == 2e-3  # as long as the slow worker takes
    assert all(row.ratio == row.simulated_s / row.measured_s for row in rows)


# What cannot be


def test_what_fails_in_a_worker_names_it():
    class Broken(Still):
        def loss_and_gradient(self, params, rows=None):
            return 0.0, {"w": np.full(self.values, np.nan, "f4")}

    for exchange in ("ps", "ring"):
        with pytest.raises(RuntimeError, match=r"worker 0 failed: NonFiniteError: The gradient of 'w' holds NaN"):
            simulate(Broken(3), workers=2, steps=2, exchange=exchange)


def test_an_interrupt_in_the_evaluation_or_in_a_gradient_passes():
    class Stopped(Still):
        def loss_and_gradient(self, params, rows=None):
            raise KeyboardInterrupt

    def stop(*_):
        raise KeyboardInterrupt

    for exchange in ("ps", "ring"):
        config = ps.Config(workers=2, steps=2, exchange=exchange)
        with pytest.raises(KeyboardInterrupt):
            ps.train(Stopped(3), config, engine=ps.Simulated())
        with pytest.raises(KeyboardInterrupt):
            ps.train(SOFTMAX, config, engine=ps.Simulated(), every=1, on_eval=stop)


def test_nodes_that_wait_for_each_other_in_vain_are_a_sentence(monkeypatch):
    from minips.engines.simulated.central import SimServer

    monkeypatch.setattr(SimServer, "_look", lambda self: None)
    with pytest.raises(RuntimeError, match="nodes wait for each other"):
        simulate(SOFTMAX, workers=2, steps=2)


@pytest.mark.parametrize("overlap", [False, True], ids=["in turn", "overlap"])
def test_messages_that_loss_brings_out_of_order_are_taken_in_theirs(overlap):
    lossy = ps.Simulated(cost.TwoRacks(1e8, uplink_bps=1e7, loss=0.05), compute_s=0.01, exponential=True)
    fields = {"workers": 4, "steps": 12, "exchange": "ring", "overlap": overlap}
    assert same_bits(simulate(SOFTMAX, lossy, **fields).params, simulate(SOFTMAX, **fields).params)


def test_what_does_not_fit_is_a_sentence():
    with pytest.raises(ValueError, match="no server to answer with old parameters"):
        simulate(SOFTMAX, ps.Simulated(delay_versions=1), workers=2, exchange="ring")
    with pytest.raises(ValueError, match="traffic needs a network"):
        simulate(SOFTMAX, ps.Simulated(traffic=[cost.Traffic()]))
    with pytest.raises(ValueError, match="worker 0, worker 1, server 0 is missing"):
        simulate(SOFTMAX, ps.Simulated(nx.Graph()), workers=2)


def test_an_engine_is_a_value():
    engine = ps.Simulated(cost.TwoRacks(uplink_bps=1e7), compute_s=0.5, traffic=[cost.Traffic(rate_bps=1e6)])
    assert ps.build("engine", engine.to_dict()) == engine
    assert ps.build("engine", {"name": "simulated", "topology": "fattree"}).topology == cost.FatTree()


def test_what_is_not_installed_is_a_sentence(monkeypatch):
    config, cluster = ps.Config(workers=2, steps=2), cost.Cluster(machines=2)
    monkeypatch.setattr(cost.Topology, "requires", ("no_such_module",))
    linked = ps.Config(workers=2, steps=2, link=ps.Link())
    for one, engine in ((linked, ps.Simulated()), (config, ps.Simulated(cluster=cluster))):
        with pytest.raises(ModuleNotFoundError, match=r'needs no_such_module.*pip install "minips\[simulate\]"'):
            ps.train(Still(10), one, engine=engine)
    monkeypatch.setitem(sys.modules, "networkx", None)
    assert ps.train(Still(10), config, engine=ps.Simulated()).updates == 4  # without a network


def test_nothing_loads_the_simulation_before_it_runs():
    words = (
        "import sys, minips as ps; ps.cost, ps.names('engine'), ps.Simulated(ps.cost.Star());"
        "print([name for name in ('networkx', 'minips.engines.simulated.simulation') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_a_cluster_with_a_machine_for_each_is_a_star():
    machines = cost.Cluster(machines=5, bandwidth_bps=8e6, latency_s=4e-3)
    config = ps.Config(workers=4, steps=3)
    problem = Still(20_000)
    one = ps.train(problem, config, engine=ps.Simulated(cluster=machines, compute_s=0.5))
    other = ps.train(problem, config, engine=ps.Simulated(topology=cost.Star(8e6, 2e-3), compute_s=0.5))
    assert one.seconds == pytest.approx(other.seconds, rel=1e-9)


@pytest.mark.parametrize(("machines", "cores", "seconds"), [(8, 1, 1.0), (4, 1, 2.0), (1, 2, 4.0), (1, 16, 1.0)])
def test_processes_of_one_machine_share_its_cores(machines, cores, seconds):
    cluster = cost.Cluster(machines=machines, cores=cores, bandwidth_bps=1e15, latency_s=0.0)
    config = ps.Config(workers=8, steps=3)
    run = ps.train(SOFTMAX, config, engine=ps.Simulated(cluster=cluster, compute_s=1.0))
    assert run.seconds_per_step == pytest.approx(seconds, rel=1e-6)
    for name, x in ps.train(SOFTMAX, config, engine="threads").params.items():
        np.testing.assert_array_equal(x, run.params[name])


def test_who_is_slowed_down_works_meanwhile_and_who_gives_up_leaves_the_core():
    """Delays are no work: four at once on one core. A straggler that gives up leaves its core to the others."""
    cluster = cost.Cluster(machines=1, cores=1, bandwidth_bps=1e15, latency_s=0.0)
    delayed = ps.Config(workers=4, steps=2, delays=ps.Delays(1.0))
    assert ps.train(SOFTMAX, delayed, engine=ps.Simulated(cluster=cluster, compute_s=0.1)).seconds == pytest.approx(2.0)
    backup = ps.Config(workers=3, steps=4, consistency=ps.BSP(backup=1))
    run = ps.train(SOFTMAX, backup, engine=ps.Simulated(cluster=cluster, compute_s=1.0, exponential=True))
    assert run.updates == 12
    again = ps.train(SOFTMAX, backup, engine=ps.Simulated(cluster=cluster, compute_s=1.0, exponential=True))
    assert run.seconds == again.seconds


def test_a_cluster_is_the_only_network():
    cluster = cost.Cluster(machines=2)
    with pytest.raises(ValueError, match="has its own topology"):
        ps.Simulated(cluster=cluster, topology="ring")
    with pytest.raises(ValueError, match="The cluster has its own network"):
        ps.train(SOFTMAX, ps.Config(steps=1, link=LINK), engine=ps.Simulated(cluster=cluster))


class Bursts(ps.SoftmaxRegression):
    """Its gradient is NaN from the tenth step on."""

    def loss_and_gradient(self, params, rows=None):
        loss, gradient = super().loss_and_gradient(params, rows)
        steps = vars(self).setdefault("steps", [])
        steps.append(loss)
        return loss, {name: g * np.float32(np.nan if len(steps) > 9 else 1) for name, g in gradient.items()}


@pytest.mark.parametrize("overlap", [False, True], ids=["in turn", "overlap"])
@pytest.mark.parametrize("exchange", ["ps", "ring"])
def test_a_gradient_that_is_not_finite_ends_the_run_as_in_a_real_one(exchange, overlap):
    config, rows = ps.Config(workers=1, steps=20, exchange=exchange, overlap=overlap), ps.datasets.digits()
    run, real = (ps.train(Bursts(*rows), config, engine=engine) for engine in ("simulated", "threads"))
    assert run.diverged == real.diverged
    assert run.diverged.startswith("At step 9 of worker 0")
    assert run.updates == real.updates
