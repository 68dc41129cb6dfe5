"""The learning rate over a run: the formulas, the same steps on every engine, and what is refused."""

import dataclasses

import numpy as np
import pytest

import minips as ps

DATA = ps.datasets.synthetic(rows=120, features=6, classes=3)
CONFIG = ps.Config(workers=2, steps=12, batch_size=8)
SCHEDULES = [
    ps.Cosine(steps=12, final=0.1),
    ps.StepDecay(every=3, decay=0.5),
    ps.Warmup(steps=4, then=ps.Cosine(steps=8)),
]
OPTIMIZERS = [
    ps.SGD(lr=0.5),
    ps.SGD(lr=0.5, momentum=0.9, nesterov=True),
    ps.Adagrad(lr=0.2),
    ps.Adam(lr=0.05),
]


def train(config, engine="threads"):
    return ps.train(ps.SoftmaxRegression(*DATA), config, engine=engine, progress=False)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=repr)
def test_the_same_bits_on_threads_and_in_a_simulation_and_with_two_servers(optimizer, schedule):
    config = dataclasses.replace(CONFIG, optimizer=dataclasses.replace(optimizer, schedule=schedule))
    first = train(config).params
    others = [train(config, "simulated").params, train(dataclasses.replace(config, servers=2)).params]
    steady = train(dataclasses.replace(CONFIG, optimizer=optimizer)).params
    for name, values in first.items():
        for other in others:
            np.testing.assert_array_equal(other[name], values)
        assert not (steady[name] == values).all()


def test_the_same_bits_in_processes_and_in_an_all_reduce_as_in_a_serial_loop():
    schedule = ps.Warmup(steps=4, then=ps.StepDecay(every=4, decay=0.5))
    config = dataclasses.replace(CONFIG, optimizer=ps.SGD(lr=0.5, schedule=schedule))
    problem = ps.SoftmaxRegression(*DATA)
    params = problem.init(np.random.default_rng(0))
    shards = [problem.shard(worker, 2) for worker in range(2)]
    for clock in range(config.steps):
        batches = [ps.engines.worker.batch(shard, config, worker, clock, 0) for worker, shard in enumerate(shards)]
        gradients = [shard.gradient(params, rows) for shard, rows in zip(shards, batches, strict=True)]
        lr = 0.5 * schedule.factor(clock)
        for name, p in params.items():
            params[name] = p - (gradients[0][name] + gradients[1][name]) / 2 * p.dtype.type(lr)
    runs = [train(config, "processes"), train(dataclasses.replace(config, exchange="ring"))]
    for name, values in params.items():
        for run in runs:
            np.testing.assert_array_equal(run.params[name], values)


def test_without_rounds_the_clock_is_that_of_all_the_workers():
    rates = []

    @dataclasses.dataclass(frozen=True)
    class Watched(ps.Schedule):
        name = "watched"

        def factor(self, clock):
            rates.append(clock)
            return 1.0

    config = dataclasses.replace(CONFIG, consistency="asp", optimizer=ps.SGD(schedule=Watched()))
    train(config, "simulated")
    assert rates == [push // 2 for push in range(24)]


def test_a_schedule_is_a_value_like_any_stage():
    optimizer = ps.SGD(lr=0.5, schedule=ps.Warmup(steps=4, then=ps.Cosine(steps=8)))
    assert ps.Config.from_dict(ps.Config(optimizer=optimizer).to_dict()).optimizer == optimizer
    assert ps.build("optimizer", {"name": "sgd", "schedule": "cosine"}).schedule == ps.Cosine()
    with pytest.raises(ValueError, match=r"no schedule named 'cosin'.*cosine"):
        ps.SGD(schedule="cosin")
