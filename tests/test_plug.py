"""The panel that pulls the plug: its decisions, its words, and what is left of the runs that it makes."""

import re
from dataclasses import replace

import numpy as np
import pytest

import minips as ps
from minips import lab
from minips.lab.panels.plug import EVERY, moments_of, twice_in
from minips.lab.views.recording import Recording, downs_of

PROBLEM = ps.SoftmaxRegression(*ps.datasets.synthetic(rows=120, classes=3))
CONFIG = ps.Config(workers=3, steps=24, link=ps.Link(10e6, 0.001))
RING = replace(CONFIG, exchange="ring")
PACED = ps.Config(workers=2, steps=20, delays=ps.Delays(seconds=0.005))


def plug(config=CONFIG, **options):
    return lab.plug(PROBLEM, config, **options)


def pulled(kill, config=CONFIG, **options):
    """What the panel finds in virtual time, after no sentence of an error."""
    panel = plug(config, kill=kill, **options)
    panel.run()
    assert panel.wait(60)
    assert not panel.job.message.value
    return panel.found


def trained(config=CONFIG, kill=None, **engine):
    simulated = ps.Simulated(compute_s=0.01, **engine)
    return ps.train(PROBLEM, config, engine=simulated, faults=ps.Faults(kill=kill) if kill else None)


def downs(run):
    return [(one.who, one.start, one.stop, one.back) for one in Recording(run).downs]


def assert_same(run, other):
    for name, x in other.params.items():
        np.testing.assert_array_equal(run.params[name], x)


class TestClicks:
    def test_a_click_kills_at_the_nearest_moment_and_one_on_the_cross_takes_it_away(self):
        panel = plug()
        moments = moments_of(trained())
        panel.click("worker 1", moments["worker 1"][9] + 0.001)
        panel.click("server 0", moments["server 0"][17] - 0.001)
        assert panel.kill == {"worker 1": 9, "server 0": 17}
        assert "Planned: worker 1 killed at clock 9 and server 0 killed at clock 17." in panel.view.sentence
        assert [panel.controls[name].value for name in ("party", "clock")] == ["server 0", "17"]
        (kills,) = [run["kills"] for run in panel.view.data["runs"]]
        assert kills["lane"] == [panel.view.data["runs"][0]["lanes"].index(who) for who in panel.kill]
        panel.click("worker 1", moments["worker 1"][9] + 0.004, near=0.005)
        assert panel.kill == {"server 0": 17}
        panel.click("server 0", moments["server 0"][3], near=0.005)
        assert panel.kill == {"server 0": 3}, "a party dies once"

    def test_the_page_asks_and_python_answers(self):
        panel = plug()
        at = moments_of(trained())["worker 2"][5]
        for _ in range(2):
            number = panel.view.panel.asked.get("number", 0) + 1
            panel.view.panel.set_state({"asked": {"who": "worker 2", "at": at, "near": 0.01, "number": number}})
            assert panel.kill == ({"worker 2": 5} if number == 1 else {})

    def test_the_same_by_keyboard(self):
        panel = plug()
        panel.controls["party"].value, panel.controls["clock"].value = "worker 0", 7
        panel.kill_button.click()
        assert panel.kill == {"worker 0": 7}
        panel.kill_button.click()
        assert panel.kill == {}
        panel.controls["party"].value, panel.controls["clock"].value = "server 0", 0
        panel.kill_button.click()
        assert panel.kill == {"server 0": 1}, "a server dies once it has applied something"

    def test_what_the_run_lacks_is_a_sentence(self):
        panel = plug(RING)
        assert list(panel.configs) == ["RingAllReduce", "BSP", "SSP(staleness=2)", "ASP"]
        panel.controls["party"].value = "server 0"
        panel.kill_button.click()
        assert "which this run lacks" in panel.job.message.value
        assert panel.kill == {}
        panel.controls["rule"].value = "ASP"
        assert panel.wait(60)
        panel.kill_button.click()
        assert panel.kill == {"server 0": 12}
        assert not panel.job.message.value
        assert panel.view.data["runs"][0]["title"] == "A: ASP, undisturbed"
        assert panel.view.data["runs"][0]["kills"]["lane"] == [0]

    def test_the_rules_are_those_that_the_config_allows(self):
        assert list(plug().configs) == ["BSP", "SSP(staleness=2)", "ASP", "RingAllReduce"]
        assert list(plug(replace(CONFIG, aggregator="weightedmean")).configs) == ["BSP"]
        backup = replace(CONFIG, consistency=ps.BSP(backup=1))
        assert list(plug(backup).configs) == ["BSP(backup=1)", "BSP", "SSP(staleness=2)", "ASP"]


class TestInVirtualTime:
    @pytest.mark.parametrize("rule", ["bsp", "asp"])
    @pytest.mark.parametrize("restart", [0, 1])
    def test_a_worker_dies_as_train_makes_it(self, rule, restart):
        config = replace(CONFIG, consistency=rule)
        found, expected = pulled({"worker 1": 9}, config, restart=restart), None
        expected = trained(config, {"worker 1": 9}, restart=restart)
        assert (found.run.seconds, found.run.events) == (expected.seconds, expected.events)
        assert_same(found.run, expected)
        dies = moments_of(trained(config))["worker 1"][9]
        back = dies + 0.5 if restart else max(dies, found.run.seconds)
        assert downs(found.run) == [("worker 1", pytest.approx(dies), pytest.approx(back), bool(restart))]
        assert twice_in(found, found.run) == (1 if restart and rule == "bsp" else 0), (
            "under ASP the others do its steps"
        )

    def test_a_server_without_a_checkpoint_takes_everything_along(self):
        found = pulled({"server 0": 9})
        assert found.ended.startswith("server 0 ended before its work was done")
        assert found.run.seconds == pytest.approx(found.calm.losses[8][0])
        assert downs(found.run) == [("server 0", found.run.seconds, found.run.seconds, False)]
        assert max(message.start for message in found.run.messages) < found.run.seconds
        panel = plug(kill={"server 0": 9})
        panel.run()
        assert panel.wait(60)
        assert "the fault costs all 9 steps so far" in panel.view.sentence

    def test_with_a_checkpoint_the_whole_run_goes_on(self):
        found = pulled({"server 0": 9}, checkpoint=True)
        calm = trained()
        assert_same(found.run, calm)
        assert found.run.updates == calm.updates
        assert found.run.seconds == pytest.approx(calm.seconds + 0.5, abs=0.01)
        assert {who for who, *_ in downs(found.run)} == {"server 0", "worker 0", "worker 1", "worker 2"}
        assert all(back and stop - start == pytest.approx(0.5, abs=0.02) for _, start, stop, back in downs(found.run))
        assert twice_in(found, found.run) == 0

    @pytest.mark.parametrize("how", [{"checkpoint": True}, {"restart": 1}], ids=str)
    @pytest.mark.parametrize("clock", [7, 17])
    def test_a_ring_goes_on_from_its_last_snapshot(self, how, clock):
        found = pulled({"worker 1": clock}, RING, **how)
        assert_same(found.run, trained(RING))
        again = clock % EVERY + 1
        assert 0 <= RING.workers * again - twice_in(found, found.run) < RING.workers, (
            "of the last clock only what ended"
        )
        assert twice_in(found._replace(measured=True), found.run) == RING.workers * again, "as it follows from the kill"
        calm = [found.calm.losses[clock - 1][0], found.calm.losses[clock - clock % EVERY - 1][0] * (clock > EVERY)]
        assert found.run.seconds - found.calm.seconds == pytest.approx(0.5 + 0.01 + calm[0] - calm[1], abs=0.01)

    @pytest.mark.parametrize(("config", "who"), [(RING, "worker 0"), (CONFIG, "worker 0"), (CONFIG, "server 0")])
    @pytest.mark.parametrize("how", [{}, {"checkpoint": True}, {"restart": 1}], ids=str)
    @pytest.mark.parametrize("clock", [0, 1, 23])
    @pytest.mark.soak
    def test_the_first_clocks_and_the_last(self, config, who, how, clock):
        clock = max(clock, who == "server 0")
        found = pulled({who: int(clock)}, config, **how)
        assert found.ended or found.run.updates + found.run.missing == 72
        assert downs(found.run)

    def test_a_ring_that_is_not_kept_ends(self):
        panel = plug(RING, kill={"worker 1": 7})
        panel.run()
        assert panel.wait(60)
        run = panel.found.run
        assert (run.clocks, run.stopped, run.updates) == (7, True, 21)
        assert_same(run, trained(replace(RING, steps=7)))
        assert "Lost: 51 of 72 pushes, all that were to come. The error's run has the parameters after 7 steps." in (
            panel.view.sentence
        )
        assert downs(run)[0][0] == "worker 1"
        down, data = panel.view.data["runs"][1]["down"], panel.view.data
        assert (data["runs"][1]["lanes"][down["lane"][0]], down["gap"][0] + down["took"][0]) == (
            "worker 1",
            data["total"],
        )
        assert ">down</text>" in panel.view.still, "up to the picture's end, though the run ends earlier"

    def test_a_servers_clock_counts_the_pushes_of_those_that_are_left(self):
        found = pulled({"worker 1": 4, "server 0": 10}, checkpoint=True)
        (killed,) = [at for at, text in found.run.events if text == "server 0 was killed at clock 10"]
        rounds = 4 + -(-3 * (10 - 4) // 2)
        alone = trained(CONFIG, {"worker 1": 4})
        assert killed == pytest.approx(alone.losses[rounds - 1][0])

    def test_a_crowd_has_lanes_of_many_and_kills_by_keyboard(self):
        panel = plug(replace(CONFIG, workers=40, steps=4), kill={"worker 33": 2})
        assert "kills" not in panel.view.data["runs"][0]
        panel.run()
        assert panel.wait(60)
        assert "Worker 33 is down from" in panel.view.sentence

    def test_an_error_is_a_sentence_and_the_kills_stay(self):
        panel = plug(kill={"server 0": 9})
        panel.controls["clock"].value = "many"
        panel.run()
        assert panel.wait(60)
        assert "takes a whole number" in panel.job.message.value
        assert panel.kill == {"server 0": 9}

    def test_it_can_be_stopped(self):
        panel = plug(kill={"worker 1": 9})
        panel.job.stopping.set()
        found = panel.find(panel.form.value())
        assert found.run.stopped
        assert "(stopped)" in panel.words(found)


@pytest.mark.parametrize(
    ("kill", "config", "how", "lost"),
    [
        ({"worker 1": 9}, PACED, {}, 11),
        ({"worker 1": 9}, PACED, {"restart": 1}, 0),
        ({"server 0": 9}, PACED, {}, None),
        ({"server 0": 9}, PACED, {"restart": 1}, 0),
        ({"server 0": 9}, PACED, {"checkpoint": True}, 0),
        ({"worker 1": 12}, replace(PACED, exchange="ring"), {}, None),
        ({"worker 1": 12}, replace(PACED, exchange="ring"), {"restart": 1}, 0),
        ({"worker 1": 3}, replace(PACED, exchange="ring"), {"checkpoint": True}, 0),
    ],
)
@pytest.mark.soak
def test_for_real_it_ends_as_in_virtual_time(kill, config, how, lost):
    panel = plug(config, kill=kill, **how)
    panel.run()
    assert panel.wait(60)
    virtual = panel.found
    panel.run_for_real()
    assert panel.wait(120)
    assert not panel.job.message.value
    found = panel.found
    assert found.measured
    if lost is None:
        assert found.ended.startswith(next(iter(kill)))
        left = "Nothing is kept" if "server 0" in kill else "The error's run has the parameters after 12 steps"
        assert left in panel.view.sentence
        assert (found.run is None) == ("server 0" in kill)
        return
    assert_same(found.run, virtual.run)
    assert f"Lost: {lost} of 40 pushes. Done twice: {twice_in(virtual, virtual.run)} gradient" in panel.view.sentence
    assert "Measured: 20 steps in" in panel.view.sentence
    assert downs(found.run)
    assert all(start < stop <= found.run.seconds + 0.5 for _, start, stop, _ in downs(found.run))
    title = [run["title"] for run in panel.view.data["runs"]][1]
    assert title == f"B: with kills{found.settings}, measured"


def test_for_real_it_can_be_stopped_and_leaves_nothing():
    panel = plug(replace(PACED, steps=2_000))
    panel.run_for_real()
    panel.stop()
    assert panel.wait(30)
    assert "undisturbed run was stopped" in panel.job.message.value


EVENTS = [
    (0.0, "server 0: the run is kept in /tmp/a, with up to 134 MB"),
    (1.0, "worker 1 ended before its work was done: its process was killed by SIGKILL."),
    (1.2, "server 0: worker 1 is gone: its connection closed without a goodbye"),
    (2.0, "worker 0 was started again: its process was killed by SIGKILL"),
    (3.0, "server 0 was started again: its process was killed by SIGKILL"),
    (3.5, "server 0: the run goes on from /tmp/a, with 80 pushes from its journal"),
    (5.0, "all workers were started again, since worker 0 ended before its work was done"),
]


def test_when_a_process_was_down_is_in_the_events_and_it_is_back_when_it_does_something():
    run = replace(trained(), events=EVENTS, seconds=9.0)
    seen = [("worker 0", 1.0), ("worker 0", 2.5), ("server 0", 3.9), ("worker 0", 6.0), ("worker 1", 0.5)]
    assert [tuple(one) for one in downs_of(run, ["worker 0"], seen)] == [
        ("worker 0", 2.0, 2.5, True),
        ("server 0", 3.0, 3.5, True),
        ("worker 0", 5.0, 6.0, True),
        ("worker 1", 1.0, 9.0, False),
    ]
    assert downs_of(trained(), ["worker 0"], seen) == []


def test_a_replay_shows_when_a_party_was_down():
    run = trained(kill={"worker 1": 12, "server 0": 3}, restart=1)
    view = lab.replay(run)
    (packed,) = view.data["runs"]
    assert [packed["lanes"][lane] for lane in packed["down"]["lane"]] == ["server 0", "worker 1"]
    assert [took * view.data["tick"] for took in packed["down"]["took"]] == pytest.approx([0.5, 0.5], abs=1e-5)
    assert "Worker 1 is down from " in view.sentence
    assert ">down</text>" in lab.plug(PROBLEM, CONFIG).view.still + view.still
    assert lab.replay(trained()).data["runs"][0]["down"] == {"gap": [], "took": [], "lane": []}


def test_it_reads_without_a_kernel(capsys):
    panel = plug(kill={"worker 1": 9}, restart=1)
    panel.static()
    told = capsys.readouterr().out
    assert panel.view.sentence in told
    assert re.search(r"The fault costs 5\d\d ms\.", told)
    assert ">down</text>" in panel.view.still
    assert "l10 10m0 -10l-10 10" in panel.view.still, "the cross"
    panel.static("In a word.")
    assert capsys.readouterr().out.endswith("In a word.\n")


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"problem": "digits"}, TypeError, "takes a problem"),
        ({"config": 3}, TypeError, "a Config, such as"),
        ({"engine": "simulated"}, TypeError, "a Simulated, or a Calibration"),
        ({"kill": {"worker 7": 3}}, ValueError, "which this run lacks"),
        ({"config": replace(CONFIG, steps=1)}, ValueError, "at least two clocks"),
        ({"config": ps.Config(), "engine": ps.Simulated()}, ValueError, "Nothing takes time"),
        ({"restart": 9}, ValueError, "restart"),
    ],
)
def test_wrong_arguments_are_sentences(arguments, error, words):
    with pytest.raises(error, match=words):
        lab.plug(**{"problem": PROBLEM, "config": CONFIG, **arguments})
