"""The panel of lesson "server": a server's rules, switched by a click beside the replay."""

import pytest

from minips_course.server import panel
from minips_course.server.panel import RULES, ServerRules, simulate


@pytest.mark.parametrize("slower", [1.0, 4.0, 8.0])
def test_each_rule_counts_what_it_costs(slower: float) -> None:
    bsp, ssp, asp = (simulate(rule, slower) for rule in RULES)
    assert {one.run.updates for one in (bsp, ssp, asp)} == {80}
    assert (bsp.versions, ssp.versions, asp.versions) == (20, 80, 80)
    assert (bsp.slow, bsp.stalest, bsp.stale) == (20, 0, 0.0)
    assert asp.waited == 0
    if slower > 1:
        assert asp.run.seconds < ssp.run.seconds < bsp.run.seconds
        assert asp.slow < ssp.slow < bsp.slow
        assert asp.stalest > ssp.stalest > bsp.stalest
        assert asp.waited < ssp.waited < bsp.waited


def test_the_slow_workers_pushes_are_those_that_the_server_applied() -> None:
    """Each worker makes 20 of 80 pushes if none is slow; the pushes of all workers are as many as were applied."""
    even = simulate("ASP", 1.0)
    assert even.slow == 20
    ends = sorted(one.end for one in even.run.messages if one.kind == "push_pull" and one.end)
    assert len(ends) >= even.run.updates


def test_a_click_plays_another_run_in_the_same_view() -> None:
    rules = ServerRules(rule="BSP")
    rules.run()
    assert rules.wait(60)
    assert rules.view.panel in rules.panel.children
    assert rules.view.sentence.startswith("BSP: 80 pushes in 1.66 virtual s, 20 of them from worker 3.")
    (before,) = rules.view.data["runs"]
    rules.controls["rule"].value = "ASP"
    assert rules.wait(60)
    assert rules.found.rule == "ASP"
    assert rules.view.sentence == rules.words(rules.found)
    (after,) = rules.view.data["runs"]
    assert (before["title"], after["title"]) == ("BSP", "ASP")


def test_the_table_has_a_row_for_each_rule() -> None:
    lines = panel.table(simulate(rule) for rule in RULES).splitlines()
    assert [line.split(" ")[0] for line in lines] == ["rule", *RULES]
    assert len({line.count("|") for line in lines}) == 1
