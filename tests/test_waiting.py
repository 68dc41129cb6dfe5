"""Waiting in virtual time, as lesson 16 computes it, against the engine that trains in virtual time; and a learner's
own server in virtual time, against the same one in threads.
"""

from itertools import pairwise

import numpy as np
import pytest

import minips as ps
from minips.lab.course.own import given, load, train_own
from minips_course.wait.waiting import virtual_own, virtual_s

RULES = [ps.BSP(), ps.BSP(backup=1), ps.SSP(staleness=2), ps.ASP()]
DRAWN = ps.Delays(seconds=0.01, exponential=True)


@pytest.mark.parametrize("rule", RULES, ids=repr)
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("abandon", [False, True])
@pytest.mark.parametrize("workers", [4, 8])
def test_it_takes_the_seconds_of_a_simulated_run(rule: ps.Consistency, seed: int, abandon: bool, workers: int) -> None:
    problem = ps.LinearRegression(np.zeros((workers, 1)), np.zeros(workers))
    config = ps.Config(workers=workers, steps=30, consistency=rule, delays=DRAWN, seed=seed, transport="inproc")
    run = ps.train(problem, config, engine=ps.Simulated(abandon=abandon))
    assert virtual_s(rule, DRAWN, 30, seed, abandon, workers) == pytest.approx(run.seconds, rel=1e-9)


@pytest.mark.parametrize("lr", [0.5, 2.0])
def test_an_own_server_in_rounds_learns_the_same_in_virtual_time_as_in_threads(lr: float) -> None:
    problem, rounds = ps.SoftmaxRegression(*ps.datasets.digits()), load(given(), "wait")
    found, real = virtual_own(rounds, problem, DRAWN, 6, 3, lr=lr), train_own(rounds, problem, steps=6, seed=3, lr=lr)
    assert found.accuracy == real.accuracy
    longest = [max(DRAWN.of(worker, clock, 3) for worker in range(4)) for clock in range(6)]
    assert found.seconds == pytest.approx(sum(longest))


def test_an_own_server_takes_the_seconds_of_its_bound() -> None:
    problem, server = ps.SoftmaxRegression(*ps.datasets.digits()), load(given(), "stale")
    servers = [type("Server", (server,), {"staleness": s}) for s in (0, 1, 99)]
    seconds = [virtual_own(one, problem, DRAWN, 20, 1).seconds for one in servers]
    own_steps = [sum(DRAWN.of(worker, clock, 1) for clock in range(20)) for worker in range(4)]
    assert all(more > less for more, less in pairwise(seconds))
    assert seconds[-1] == pytest.approx(max(own_steps))


def test_an_own_server_that_does_not_answer_is_an_error() -> None:
    class Silent:
        def __init__(self, params: object, workers: int, lr: float) -> None:
            self.params = params

        def handle(self, worker: int, message: tuple[str, dict[str, object]]) -> list[object]:
            return [(worker, ("params", self.params))] if message[0] == "pull" else []

    with pytest.raises(ValueError, match="without an answer"):
        virtual_own(Silent, ps.SoftmaxRegression(*ps.datasets.digits()), DRAWN, 3, 0)
