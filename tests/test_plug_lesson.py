"""The tools of "Pull the plug": schedules of faults for an own server, histories, deaths, and prices."""

import numpy as np
import pytest

import minips as ps
from minips.lab.course import own
from minips.testing.faults import Cut, Kill
from minips_course.plug import deaths, drill, histories, prices

PROBLEM = ps.SoftmaxRegression(*ps.datasets.synthetic(rows=64, classes=3)[:2])


@pytest.fixture(scope="module")
def before() -> type:
    """The given server before the lesson."""
    return own.load(own.given(), "plug")


def test_without_faults_each_push_counts_once(before: type) -> None:
    for cls in (before, drill.Once):
        found = drill.run(cls, 3, ())
        assert found.wrong == []
        assert found.story() == "Each push counts once."
        assert [event for event in found.history if event[0] == "kept"] != []


def test_a_seed_gives_the_same_schedule_twice(before: type) -> None:
    one, other = drill.run(before, 5), drill.run(before, 5)
    assert (one.faults, one.log, one.history) == (other.faults, other.log, other.history)
    assert drill.run(before, 6).faults != one.faults


def test_a_server_that_forgets_counts_a_retry_twice_and_a_schedule_is_shrunk_to_what_that_needs(before: type) -> None:
    found = drill.first_wrong(before, range(100))
    small = drill.shrunk(before, found)
    assert len(found.faults) > len(small.faults) == 1
    assert small.twice > 0
    for words in ("sends its push", "has kept", "is killed", "reconnects"):
        assert words in small.story()
    assert not drill.run(before, small.seed, ()).wrong


@pytest.mark.parametrize("fault", [Cut(1, 0, 4, False), Cut(1, 0, 4, True), Kill("server 0", 12, 0.01)], ids=str)
def test_a_server_that_remembers_counts_it_once(fault: Cut | Kill) -> None:
    for seed in range(20):
        assert drill.run(drill.Once, seed, [fault]).wrong == []


def test_only_both_ends_together_count_each_push_once() -> None:
    found = drill.compared(range(60))
    assert found.pushes == 60 * drill.WORKERS * drill.STEPS
    assert found.twice > 0
    assert found.lost > 0
    assert found.wrong == 0


def test_planted_bugs_break_the_promise_and_schedules_do_not() -> None:
    def holds(history: histories.History) -> bool:
        kept = [event[1:] for event in history if event[0] == "kept"]
        told = all(
            ("kept", *event[1:]) in history[:at] for at, event in enumerate(history) if event[0] == "acknowledged"
        )
        return told and len({*kept}) == len(kept)

    assert histories.told(holds, range(100)) == {"found": 100, "planted": 100, "blamed": 0, "right": 100}


def test_a_dead_worker_costs_its_gradients_under_bsp_and_all_that_were_to_come_in_a_ring() -> None:
    config = ps.Config(workers=deaths.WORKERS, steps=deaths.STEPS)
    assert deaths.of_worker(PROBLEM, config).lost == deaths.STEPS // 2
    again = deaths.of_worker(PROBLEM, config, restart=1)
    assert (again.lost, again.same) == (0, True)
    ring = deaths.of_worker(PROBLEM, ps.Config(workers=deaths.WORKERS, steps=deaths.STEPS, exchange="ring"))
    assert np.isnan(ring.seconds)
    assert ring.lost == deaths.WORKERS * deaths.STEPS // 2
    assert "ended" in deaths.table({"ring": ring})


@pytest.mark.soak
def test_a_worker_dies_between_two_servers_without_a_trace() -> None:
    found = deaths.between_servers()
    assert found.kills > found.between > 0
    assert found.wrong == 0


def test_prices_are_ratios_of_seconds() -> None:
    found = prices.measure(100, rounds=3)
    assert found.none_s > 0
    assert found.journal.low <= found.journal.median <= found.journal.high
    assert found.synced.median > 0
