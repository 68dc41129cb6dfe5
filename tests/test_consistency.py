"""Who waits for whom, in a table."""

import dataclasses

import pytest

import minips as ps
from minips import stage


@pytest.mark.parametrize(
    ("model", "waits_until"),
    [
        (ps.BSP(), lambda clock: clock),
        (ps.BSP(backup=2), lambda clock: clock),
        (ps.SSP(staleness=0), lambda clock: clock),
        (ps.SSP(staleness=3), lambda clock: clock - 3),
        (ps.ASP(), lambda clock: -1),
    ],
    ids=lambda one: repr(one) if isinstance(one, ps.Stage) else None,
)
def test_a_pull_returns_once_the_slowest_is_near_enough(model, waits_until):
    for clock in range(10):
        for slowest in range(clock + 1):
            assert model.may_pull(clock, slowest) is (slowest >= waits_until(clock)), (clock, slowest)


def test_ho_2013_a_pull_at_clock_c_sees_all_updates_stamped_c_minus_s_minus_1():
    """The slowest has made all its pushes up to clock ``slowest``: those are stamped 0 … slowest − 1."""
    for staleness in range(5):
        for clock in range(10):
            seen = [slowest for slowest in range(12) if ps.SSP(staleness=staleness).may_pull(clock, slowest)]
            assert min(seen) - 1 == max(clock - staleness - 1, -1)


@pytest.mark.parametrize(("backup", "workers", "quorum"), [(0, 1, 1), (0, 4, 4), (1, 4, 3), (3, 4, 1)])
def test_a_round_waits_for_all_but_the_backups(backup, workers, quorum):
    assert ps.BSP(backup=backup).quorum(workers) == quorum


def test_more_backups_than_workers_cannot_work():
    with pytest.raises(ValueError, match=r"BSP\(backup=4\) needs more than 4 workers, got 4\."):
        ps.BSP(backup=4).quorum(4)


@pytest.mark.parametrize("model", [ps.SSP(), ps.ASP()], ids=repr)
def test_without_rounds_there_is_no_quorum(model):
    assert model.quorum(4) is None


@pytest.fixture
def dynssp(monkeypatch):
    """A model that sees when the others pushed last. Source: Zhao et al. 2019, "Dynamic Stale Synchronous Parallel"."""
    monkeypatch.setitem(stage._KINDS, "consistency", dict(stage._KINDS["consistency"]))

    @ps.register
    @dataclasses.dataclass(frozen=True)
    class DynSSP(ps.Consistency):
        name = "dynssp"
        least: int = 1
        most: int = 4

        def quorum(self, workers):
            return None

        def may_pull(self, view):
            view.state["asked"] = view.state.get("asked", 0) + 1
            slow = min(range(len(view.clocks)), key=view.clocks.__getitem__)
            step_s = view.pushed_at[slow] / max(view.clocks[slow], 1)
            due_s = max(view.pushed_at[slow] + step_s - view.now, 0.0)
            own_s = max(view.pushed_at[view.worker] / max(view.clocks[view.worker], 1), 1e-9)
            extra = min(int(due_s / own_s), self.most - self.least)
            return view.clocks[view.worker] - view.slowest <= self.least + extra

    return DynSSP


def test_a_model_may_see_clocks_times_and_a_state_of_its_own(dynssp):
    problem = ps.SoftmaxRegression(*ps.datasets.synthetic(rows=64, classes=2))
    delays = ps.Delays(seconds=0.01, slow={1: 3.5})
    config = ps.Config(workers=3, steps=30, consistency=dynssp(), delays=delays, optimizer=ps.SGD(lr=0.01))
    runs = {
        rule: ps.train(problem, dataclasses.replace(config, consistency=rule), engine=ps.Simulated())
        for rule in (dynssp(), ps.SSP(1), ps.SSP(4))
    }
    ahead = [max(grant.clock - grant.slowest for grant in run.grants) for run in runs.values()]
    assert ahead[1] <= 1 < ahead[0] <= 4
    assert runs[ps.SSP(4)].seconds <= runs[dynssp()].seconds < runs[ps.SSP(1)].seconds
    ps.testing.check_consistency(dynssp())


def test_a_model_that_sees_the_time_runs_on_threads_too(dynssp):
    problem = ps.SoftmaxRegression(*ps.datasets.synthetic(rows=64, classes=2))
    run = ps.train(problem, ps.Config(workers=3, steps=10, consistency=dynssp()), engine=ps.Threads())
    assert run.updates == 30
