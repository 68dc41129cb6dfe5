"""Waiting in virtual time, as lesson 14 computes it, against the engine that trains in virtual time."""

import pytest

import minips as ps
from minips_course.wait.waiting import Log, virtual_s

RULES = [ps.BSP(), ps.BSP(backup=1), ps.SSP(staleness=2), ps.ASP()]


@pytest.mark.parametrize("rule", RULES, ids=repr)
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("abandon", [False, True])
def test_it_takes_the_seconds_of_a_simulated_run(rule: ps.Consistency, seed: int, abandon: bool) -> None:
    delays = ps.Delays(seconds=0.01, exponential=True)
    config = ps.Config(workers=4, steps=30, consistency=rule, delays=delays, seed=seed, transport="inproc")
    run = ps.train(Log(), config, engine=ps.Simulated(abandon=abandon))
    assert virtual_s(rule, delays, 30, seed, abandon) == pytest.approx(run.seconds, rel=1e-9)
