"""The panel and the tools of lesson "wait"."""

import pytest

import minips as ps
from minips_course.wait import waiting
from minips_course.wait.panel import SLOWNESS, STEPS, WhoWaits, simulate

RULES = (ps.BSP(), ps.BSP(backup=1), ps.SSP(staleness=2), ps.ASP())


@pytest.mark.parametrize("slowness", SLOWNESS)
@pytest.mark.parametrize("workers", [4, 16])
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_the_panel_takes_the_seconds_that_the_lesson_counts(rule: ps.Consistency, workers: int, slowness: str) -> None:
    found = simulate(rule, slowness, workers)
    delays = SLOWNESS[slowness]
    assert found.run.seconds == pytest.approx(waiting.virtual_s(rule, delays, STEPS, 0, workers=workers))
    assert found.bsp_s == pytest.approx(waiting.virtual_s(ps.BSP(), delays, STEPS, 0, workers=workers))
    assert 0 <= found.waited < 1


def test_a_click_shows_another_rule_and_its_share_of_the_time() -> None:
    who = WhoWaits()
    who.run()
    assert who.wait(60)
    assert who.view.sentence.startswith("SSP(staleness=2), 4 workers: 80 updates in 1.46 virtual s, 91% of BSP's time.")
    who.controls["rule"].value = "bsp"
    who.controls["rule.backup"].value = 1
    assert who.wait(60)
    assert who.view.sentence.startswith("BSP(backup=1), 4 workers: 81 updates in 0.54 virtual s, 34% of BSP's time.")
    assert who.view.sentence.endswith("dropped 6 late pushes.")


@pytest.mark.parametrize("workers", [4, 8])
def test_own_servers_of_rounds_and_of_a_large_staleness_are_bsp_and_asp(workers: int) -> None:
    problem, delays = ps.SoftmaxRegression(*ps.datasets.digits()), SLOWNESS["comes and goes"]
    rounds = waiting.virtual_own(_Rounds, problem, delays, 5, seed=1, workers=workers)
    assert rounds.seconds == pytest.approx(waiting.virtual_s(ps.BSP(), delays, 5, 1, workers=workers))
    free = waiting.virtual_own(_Ahead, problem, delays, 5, seed=1, workers=workers)
    alone = [sum(delays.of(one, clock, 1) for clock in range(5)) for one in range(workers)]
    assert free.seconds == pytest.approx(max(alone))


class _Rounds:
    def __init__(self, params: ps.Tensors, workers: int, lr: float) -> None:
        self.params, self.workers, self.held = params, workers, 0

    def handle(self, worker: int, message: tuple[str, ps.Tensors]) -> list[tuple[int, tuple[str, ps.Tensors]]]:
        if message[0] == "pull":
            return [(worker, ("params", self.params))]
        self.held = (self.held + 1) % self.workers
        return [] if self.held else [(one, ("applied", {})) for one in range(self.workers)]


class _Ahead(_Rounds):
    def handle(self, worker: int, message: tuple[str, ps.Tensors]) -> list[tuple[int, tuple[str, ps.Tensors]]]:
        return super().handle(worker, message) if message[0] == "pull" else [(worker, ("applied", {}))]
