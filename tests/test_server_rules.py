"""The panel of lesson "server": a server's rules, switched by a click beside the replay."""

import html

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


def test_a_click_replaces_the_replay_and_its_words() -> None:
    rules = ServerRules(rule="BSP")
    rules.run()
    assert rules.wait(60)
    (before,) = rules.shown.children
    assert rules.words(rules.found).startswith("BSP: 80 pushes in 1.66 virtual s, 20 of them from worker 3.")
    replay = rules.replay
    rules.controls["rule"].value = "ASP"
    assert rules.wait(60)
    assert rules.found.rule == "ASP"
    assert rules.shown.children == (before,)
    assert rules.replay is replay
    assert replay is not None
    assert replay.sentence.startswith("ASP")
    assert html.escape(rules.words(rules.found)) in rules.picture.words.value


def test_it_reads_without_a_kernel(capsys: pytest.CaptureFixture[str]) -> None:
    rules = ServerRules(rule="SSP", slower=8)
    rules.static()
    assert capsys.readouterr().out == f"<picture: {rules.title}>\n{rules.words(rules.found)}\n"


def test_the_table_has_a_row_for_each_rule() -> None:
    lines = panel.table(simulate(rule) for rule in RULES).splitlines()
    assert [line.split(" ")[0] for line in lines] == ["rule", *RULES]
    assert len({line.count("|") for line in lines}) == 1
