"""Local steps: the arithmetic of the field's algorithms, a state that survives, and what the words count."""

import dataclasses
import threading
import warnings

import numpy as np
import pytest

import minips as ps
from minips import seeds
from minips.engines.worker import batch
from minips.machines.calibration import Calibration
from minips.machines.fit import Line
from minips.training import byhand

ROWS = np.random.default_rng(0).normal(size=(86, 5))  # four workers: 22, 22, 21 and 21
PROBLEM = ps.LinearRegression(ROWS, ROWS @ np.arange(5.0) + np.random.default_rng(1).normal(size=86) / 9)
SOFTMAX = ps.SoftmaxRegression(*ps.datasets.synthetic(rows=120, classes=3))
AVERAGE = ps.SGD(lr=1.0)
DILOCO = ps.SGD(lr=0.7, momentum=0.9, nesterov=True)
ADAM = ps.LocalSteps(steps=5, optimizer=ps.Adam(lr=0.02))
TOPK = ps.Codec(ps.TopK(0.2), ps.ErrorFeedback())
ENGINES = ["threads", "processes", "simulated"]
engines = pytest.mark.parametrize("engine", ENGINES)


def config(**fields):
    return ps.Config(**{"workers": 4, "steps": 30, "batch_size": 8, "optimizer": AVERAGE, "local": ADAM, **fields})


def apart(params, others):
    assert params.keys() == others.keys()
    return max(float(np.abs(p - others[name]).max()) for name, p in params.items())


def bits(params):
    return {name: p.tobytes() for name, p in params.items()}


# The arithmetic


@engines
@pytest.mark.parametrize("exchange", ["ps", pytest.param("ring", marks=pytest.mark.soak)])
def test_one_local_step_and_an_outer_rate_of_one_are_bsp(exchange, engine):
    plain = config(local=None, optimizer=ps.SGD(lr=0.1), exchange=exchange)
    one = config(local=ps.LocalSteps(steps=1, optimizer=ps.SGD(lr=0.1)), exchange=exchange)
    expected, run = (ps.train(PROBLEM, each, engine=engine) for each in (plain, one))
    assert apart(expected.params, run.params) < 1e-12
    assert [step for _, step, _ in run.losses] == [step for _, step, _ in expected.losses]


def serial(local, rounds, inner):
    """DiLoCo (Douillard et al. 2023, algorithm 1) in one loop: ``inner(worker, p, g)`` is a worker's step on each name;
    the parameters, and the losses of the rounds.
    """
    shards = [PROBLEM.shard(worker, 4) for worker in range(4)]
    params, losses = PROBLEM.init(seeds.init(0)), []
    velocity = {name: np.zeros_like(p) for name, p in params.items()}
    for _ in range(rounds):
        differences, told = [], []
        for worker, shard in enumerate(shards):
            own = {name: p.copy() for name, p in params.items()}
            for _ in range(local):
                loss, gradient = shard.loss_and_gradient(own)
                told.append(loss)
                for name in own:
                    own[name] = inner((worker, name), own[name], gradient[name])
            differences.append({name: p - own[name] for name, p in params.items()})
        losses.append(np.mean(told))
        for name, p in params.items():
            mean = np.mean([difference[name] for difference in differences], axis=0)
            velocity[name] = 0.9 * velocity[name] + mean
            params[name] = p - 0.7 * (mean + 0.9 * velocity[name])
    return params, losses


def test_six_rounds_of_diloco_are_the_serial_loop():
    expected, losses = serial(7, 6, lambda who, p, g: p - 0.05 * g)
    seven = ps.LocalSteps(steps=7, optimizer=ps.SGD(lr=0.05))
    for exchange, engine in ("ps", "threads"), ("ring", "threads"), ("ps", "simulated"):
        wanted = config(steps=42, batch_size=None, optimizer=DILOCO, local=seven, exchange=exchange)
        run = ps.train(PROBLEM, wanted, engine=engine)
        assert apart(run.params, expected) < 1e-10
        assert [loss for *_, loss in run.losses] == pytest.approx(losses, rel=1e-10)


def test_the_inner_optimizers_state_survives_the_rounds():
    moments = {}

    def adam(who, p, g):
        m, v, t = moments.get(who, (0.0, 0.0, 0))
        m, v, t = moments[who] = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g, t + 1
        return p - 0.02 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)

    expected, _ = serial(5, 6, adam)
    run = ps.train(PROBLEM, config(batch_size=None, optimizer=DILOCO), engine="threads")
    assert apart(run.params, expected) < 1e-10
    moments.clear()
    forgetful, _ = serial(5, 1, adam)  # the first round alone knows no earlier state
    assert apart(run.params, forgetful) > 1e-3


@engines
@pytest.mark.parametrize(
    "fields",
    [
        {},
        pytest.param({"servers": 2, "push": TOPK}, marks=pytest.mark.soak),
        pytest.param({"exchange": "ring"}, marks=pytest.mark.soak),
        pytest.param({"overlap": True, "pull": ps.Codec(ps.QSGD())}, marks=pytest.mark.soak),
    ],
    ids=["ps", "topk", "ring", "overlap"],
)
def test_a_saved_run_goes_on_to_the_bit(engine, fields, tmp_path):
    wanted = config(workers=2, optimizer=DILOCO, **fields)
    whole = ps.train(SOFTMAX, wanted, engine=engine)
    half = ps.train(SOFTMAX, dataclasses.replace(wanted, steps=15), engine=engine)
    half.save(tmp_path / "run.npz")
    rest = ps.train(SOFTMAX, wanted, engine=engine, resume=tmp_path / "run.npz")
    assert bits(rest.params) == bits(whole.params)
    assert [row[1:] for row in rest.losses] == [row[1:] for row in whole.losses]
    for worker in half.state["workers"]:
        (worker if "hops" in worker else worker["links"][0])["inner"] = {}
    assert bits(ps.train(SOFTMAX, wanted, engine=engine, resume=half).params) != bits(whole.params)


@pytest.mark.parametrize("overlap", [False, True])
def test_a_run_that_was_paused_or_stopped_goes_on_to_the_bit(overlap):
    wanted, half = config(workers=2, steps=100, overlap=overlap), threading.Event()
    whole = ps.train(SOFTMAX, wanted, engine="threads")
    paused = ps.train(SOFTMAX, wanted, engine="threads", every=20, on_eval=lambda now: None)
    assert bits(paused.params) == bits(whole.params)
    stopped = ps.train(
        SOFTMAX,
        dataclasses.replace(wanted, delays=ps.Delays(0.002)),
        engine="threads",
        stop=half,
        progress=lambda now: half.set() if now.losses else None,
    )
    assert stopped.stopped
    assert 0 < stopped.updates < 40
    assert bits(ps.train(SOFTMAX, wanted, engine="threads", resume=stopped).params) == bits(whole.params)


def test_workers_by_hand_leave_their_state_with_the_servers():
    wanted = config(workers=2, servers=2, transport="inproc")
    whole, run = ps.train(SOFTMAX, wanted, engine="threads"), None
    for steps in 15, 30:
        with byhand.serving(SOFTMAX, dataclasses.replace(wanted, steps=steps), None, "t", resume=run) as served:
            addresses = [server.address for server in served.servers]
            threads = [threading.Thread(target=ps.work, args=(SOFTMAX, addresses), kwargs={"token": "t"}) for _ in "ab"]
            for thread in threads:
                thread.start()
            served.wait()
            run = served.end()
            for thread in threads:
                thread.join()
    assert bits(run.params) == bits(whole.params)
    assert [row[1:] for row in run.losses] == [row[1:] for row in whole.losses]


@pytest.mark.parametrize("fields", [{"consistency": "asp"}, {"consistency": ps.SSP(2)}, {"overlap": True}], ids=repr)
def test_every_rule_of_waiting_learns(fields):
    wanted = config(steps=200, local=ps.LocalSteps(8, ps.SGD(lr=0.05)), **fields)
    run = ps.train(PROBLEM, wanted, engine=ps.Simulated(compute_s=0.01, exponential=True))
    assert run.updates == 4 * 25
    assert run.losses[-1][1] == 200
    assert run.losses[-1][2] < 0.05 * run.losses[0][2]


# The words


def test_steps_losses_evaluations_and_progress_count_gradient_steps():
    seen, told = [], []
    for engine in "threads", "simulated":
        for exchange in "ps", "ring":
            told.clear(), seen.clear()
            wanted = config(exchange=exchange)
            run = ps.train(PROBLEM, wanted, engine=engine, progress=told.append, every=10, on_eval=seen.append)
            assert [step for _, step, _ in run.losses] == [5, 10, 15, 20, 25, 30]
            assert [now.step for now in seen] == [10, 20, 30]
            assert told[-1][:2] == (4 * 30, 4 * 30)
            assert run.updates == 4 * wanted.clocks == 4 * 6
            assert run.seconds_per_step == pytest.approx(run.seconds / 30)
            assert "time per step" in run.summary()
            assert "5 of Adam(lr=0.02" in run.summary()


def test_what_is_no_whole_number_of_exchanges_is_refused_with_the_nearest_numbers():
    for steps, nearest in (200, "180 or 210"), (20, "30 or 60"):
        with pytest.raises(ValueError, match=rf"Config\.steps .*local\.steps=30, such as {nearest}; got {steps}\."):
            config(steps=steps, local=ps.LocalSteps(steps=30))
    with pytest.raises(ValueError, match=r"every .*local\.steps=5, such as 5 or 10; got 7\."):
        ps.train(PROBLEM, config(), engine="threads", every=7, on_eval=lambda now: None)
    for local, steps in (None, 9), (ADAM, 10):
        epochs = ps.Config(workers=4, epochs=3, batch_size=8, local=local)
        assert epochs.for_rows(86).steps == steps


def test_batches_and_draws_are_those_of_a_run_without_local_steps():
    class Drawing(ps.LinearRegression):
        draws = True

        def loss_and_gradient(self, params, rows=None, *, rng):
            drawn.append((*rows, rng.integers(2**32)))
            return super().loss_and_gradient(params, rows)

    problem, of = Drawing(PROBLEM.X, PROBLEM.y), []
    for local in None, ADAM:
        for sampling in "batch", "epoch":
            drawn = []
            wanted = config(workers=1, local=local, accumulate=2, sampling=sampling)
            ps.train(problem, wanted, engine="simulated")
            of.append(drawn)
    assert of[:2] == of[2:]
    assert len(of[0]) == 2 * 30
    assert of[0][2][:-1] == tuple(batch(problem, wanted.with_({"sampling": "batch"}), 0, 1, 0))


def test_seconds_are_of_gradient_steps():
    for local in None, ADAM:
        for engine, delays in (ps.Simulated(compute_s=0.5), None), (ps.Simulated(), ps.Delays(0.5)):
            run = ps.train(PROBLEM, config(local=local, delays=delays), engine=engine)
            assert run.seconds == pytest.approx(30 * 0.5)
            assert run.seconds_per_step == pytest.approx(0.5)
    delays, engine = ps.Delays(1.0, exponential=True), ps.Simulated(exponential=True, compute_s=1.0)
    drawn = [delays.of(0, step, 0) for step in range(30)]
    assert ps.train(PROBLEM, config(workers=1, delays=delays), engine="simulated").seconds == pytest.approx(sum(drawn))
    drawn = [seeds.compute(0, 0, step).exponential() for step in range(30)]
    assert ps.train(PROBLEM, config(workers=1), engine=engine).seconds == pytest.approx(sum(drawn))


def test_the_outer_schedule_counts_exchanges_and_the_inner_one_gradient_steps():
    inner, outer = ps.SGD(0.1, schedule=ps.StepDecay(every=10)), ps.SGD(1.0, schedule=ps.StepDecay(every=2))
    wanted = config(workers=1, steps=20, batch_size=None, optimizer=outer, local=ps.LocalSteps(5, inner))
    params, fixed = PROBLEM.init(seeds.init(0)), ps.SGD(0.1)
    for clock in range(4):
        own = {name: p.copy() for name, p in params.items()}
        for step in range(5 * clock, 5 * clock + 5):
            gradient = PROBLEM.loss_and_gradient(own)[1]
            dataclasses.replace(fixed, lr=0.1 * 0.1 ** (step // 10)).step(own, gradient, {})
        params = {name: np.array(p - 0.1 ** (clock // 2) * (p - own[name])) for name, p in params.items()}
    assert apart(ps.train(PROBLEM, wanted, engine="threads").params, params) < 1e-12


def test_an_outer_rate_that_was_left_as_it_was_is_told():
    small = config(optimizer=ps.SGD(lr=0.1))
    for engine in "threads", "simulated":
        with pytest.warns(UserWarning, match=r"SGD\(.*\) moves the parameters by 0\.1 of the way"):
            ps.train(PROBLEM, small, engine=engine)
    with pytest.warns(UserWarning, match="outer"), ps.Server({"w": np.zeros(3)}, small).serve():
        pass
    with pytest.warns(UserWarning, match="outer"), byhand.serving(PROBLEM, small, None, "t"):
        pass
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for fine in ps.SGD(lr=0.5), ps.SGD(lr=0.1, momentum=0.9), ps.Adam():
            ps.train(PROBLEM, config(optimizer=fine, steps=5), engine="simulated")


@pytest.mark.parametrize("at", [3, 8])
@pytest.mark.parametrize("exchange", ["ps", "ring"])
def test_a_run_that_diverges_says_at_which_gradient_step(exchange, at):
    class Late(ps.LinearRegression):
        def loss_and_gradient(self, params, rows=None):
            loss, gradient = super().loss_and_gradient(params, rows)
            made.append(loss)
            return (np.nan if len(made) == at + 1 else loss), gradient

    for engine in "threads", "simulated":
        made = []
        run = ps.train(Late(PROBLEM.X, PROBLEM.y), config(workers=1, exchange=exchange), engine=engine)
        assert run.diverged.startswith(f"At step {at} of worker 0: The training loss is nan")
        assert (run.updates, len(run.losses)) == (at // 5, at // 5)


def test_a_gradient_that_does_not_fit_is_refused_as_without_local_steps():
    class Wide(ps.LinearRegression):
        def loss_and_gradient(self, params, rows=None):
            loss, gradient = super().loss_and_gradient(params, rows)
            return loss, {name: g.astype("f4") for name, g in gradient.items()}

    with pytest.raises(RuntimeError, match="must be float64"):
        ps.train(Wide(PROBLEM.X, PROBLEM.y), config(), engine="threads")


def test_a_run_of_other_local_steps_cannot_go_on():
    run = ps.train(PROBLEM, config(steps=5), engine="simulated")
    for local in None, ps.LocalSteps(6, ps.Adam()), ps.LocalSteps(5, ps.SGD()):
        with pytest.raises(ValueError, match=r"The run has local=LocalSteps.*its state would not fit"):
            ps.train(PROBLEM, config(local=local), engine="simulated", resume=run)
    with pytest.raises(ValueError, match="give more than 5,"):
        ps.train(PROBLEM, config(steps=5), engine="simulated", resume=run)
    slower = config(local=ps.LocalSteps(5, ps.Adam(lr=0.001)))
    assert ps.train(PROBLEM, slower, engine="simulated", resume=run).updates == 24


# The prediction


@pytest.mark.parametrize(
    "fields", [{}, {"exchange": "ring"}, {"servers": 2, "push": ps.Codec(ps.Uniform(8))}], ids=repr
)
def test_predicted_bytes_are_a_runs(fields):
    wanted = config(**fields)
    prediction = ps.cost.predict(SOFTMAX, wanted, Calibration())
    run = ps.train(SOFTMAX, wanted, engine="simulated")
    assert prediction.exact_bytes
    assert (prediction.bytes_sent, prediction.bytes_received) == (run.bytes_sent, run.bytes_received)


@pytest.mark.soak
def test_a_codec_whose_bytes_depend_on_values_is_predicted_from_a_difference():
    push = ps.Codec(ps.Threshold(value=0.02))
    of = [ps.cost.predict(SOFTMAX, config(push=push, local=ps.LocalSteps(each, ps.SGD(lr=0.01)))) for each in (1, 15)]
    pushed = [prediction.bytes_sent * prediction.config.local_steps for prediction in of]
    assert pushed[1] > 1.5 * pushed[0]  # one step moves few values so far


def test_predicted_seconds_are_of_gradient_steps():
    known = Calibration(gradient=Line(0.001), server={"apply": Line(0.0005)}, cores=8)
    known = dataclasses.replace(known, problem=ps.cost.problem_words(SOFTMAX))
    delayed = config(delays=ps.Delays(0.01), link=ps.Link(1e6, 0.01), steps=60)
    plain = ps.cost.predict(SOFTMAX, dataclasses.replace(delayed, local=None), known)
    for each, seconds in (1, plain.seconds_per_step), (30, 0.01 + (plain.seconds_per_step - 0.01) / 30):
        local = ps.cost.predict(SOFTMAX, dataclasses.replace(delayed, local=ps.LocalSteps(each)), known)
        assert local.seconds_per_step == pytest.approx(seconds, rel=0.02)
        assert local.seconds == pytest.approx(60 * local.seconds_per_step)
        assert local.spans["compute"] == pytest.approx(0.01, rel=0.02)
    steps = config().local.steps
    for following, next_s in (None, 0.001), (Line(0.0004), 0.0004):  # a gradient right after another may take less
        warm = dataclasses.replace(known, next_gradient=following)
        busy = ps.cost.predict(SOFTMAX, config(), warm)
        rows = ps.cost.compare(busy, ps.train(SOFTMAX, config(), engine=ps.Simulated(calibration=warm))).rows
        for name, predicted, measured in rows:
            assert predicted == pytest.approx(measured, rel=0.01, abs=1e-9), name
        gradient_s = (0.001 + (steps - 1) * next_s) / steps
        assert busy.spans["compute"] == pytest.approx(gradient_s + 0.0005)  # and the inner optimizer's step


def test_steps_to_an_accuracy_are_gradient_steps():
    problem = ps.SoftmaxRegression(*ps.datasets.digits())
    local = ps.LocalSteps(steps=6, optimizer=ps.SGD(lr=0.3))
    found = ps.cost.steps_to(problem, config(steps=120, local=local, batch_size=32), 0.9)
    assert found % 6 == 0
    plain = config(steps=120, local=None, optimizer=ps.SGD(lr=0.3), batch_size=32)
    assert found == pytest.approx(ps.cost.steps_to(problem, plain, 0.9), abs=24)


# What it is for


@pytest.mark.soak
def test_30_local_steps_send_a_25th_of_the_bytes_and_learn_as_much():
    problem, inner = ps.SoftmaxRegression(*ps.datasets.digits()), ps.SGD(lr=0.3)
    for seed in range(5):
        plain = ps.Config(workers=4, steps=480, optimizer=inner, seed=seed)
        local = dataclasses.replace(plain, optimizer=AVERAGE, local=ps.LocalSteps(30, inner))
        every, seldom = (ps.train(problem, each, engine="simulated") for each in (plain, local))
        assert 25 * seldom.bytes_sent <= every.bytes_sent
        assert abs(seldom.accuracy - every.accuracy) <= 0.01
        assert seldom.validation_loss <= 1.05 * every.validation_loss


def test_workers_that_hold_few_classes_drift_apart():
    """Source of the effect: Zhao et al. 2018, "Federated Learning with Non-IID Data"."""
    problem, inner = ps.SoftmaxRegression(*ps.datasets.digits()), ps.SGD(lr=0.1)
    config = ps.Config(workers=4, steps=480, optimizer=AVERAGE, local=ps.LocalSteps(120, inner))
    for seed in range(2):
        apart, mixed = (
            ps.train(problem, dataclasses.replace(config, shards=shards, seed=seed), engine="simulated")
            for shards in (ps.ByLabel(), ps.Shuffled())
        )
        assert apart.validation_loss >= 1.8 * mixed.validation_loss
