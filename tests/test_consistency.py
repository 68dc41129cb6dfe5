"""Who waits for whom, in a table."""

import pytest

import minips as ps


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
