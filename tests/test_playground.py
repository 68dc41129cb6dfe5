"""The playground, without a browser: its controls, bytes, pictures, words and texts, and a run for real."""

import dataclasses
import json
import re
import threading
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import minips as ps
from minips import lab
from minips import stage as stage_module
from minips.lab.source import one_line, read_line
from minips.lab.views import base, drawings, funnel, outcomes, pipeline
from minips.lab.views.outcomes import ANSWERED, PASSED_ON, PUSHED, PlayedRun
from minips.lab.views.pipeline import BOXES, SETTINGS, START, change, controls, stops
from minips.stage import missing, names, stage_class

ENDING_S = 60


@pytest.fixture(scope="module")
def problem():
    return ps.SoftmaxRegression(*ps.datasets.synthetic(rows=200, features=10, classes=3))


def simulate(problem, config):
    return ps.train(problem, config, engine=ps.Simulated())


def asked(play, **question):
    play.answer(question)
    assert play.wait(ENDING_S)
    return play.view.data


def stages():
    """Each installed stage that a box can hold, with its path in the config."""
    for path in (*(pipeline.STAGES[box] for box in BOXES if box in pipeline.STAGES), ("pull", "quantizer")):
        for name in names(path[-1]):
            if not missing(stage_class(path[-1], name)):
                yield ".".join(path), name


def control(config, path):
    for box in (*BOXES, pipeline.BACK):
        for one in controls(config, box, "A"):
            if one["path"] == path:
                return one
    raise AssertionError(path)


class TestControls:
    def test_a_select_offers_every_registered_stage(self):
        for path in ("push.quantizer", "push.memory", "transport", "consistency", "pull.quantizer", "exchange"):
            assert control(START, path)["options"] == names(path.rpartition(".")[2])

    @pytest.mark.parametrize(("path", "name"), list(stages()))
    def test_each_stop_of_each_stage_is_taken_and_shown(self, path, name):
        config = dataclasses.replace(START, workers=8)
        chosen = change(config, path, name)
        assert control(chosen, path)["value"] == name
        stage = pipeline.stage_at(chosen, path.split("."))
        fields = [one for box in BOXES for one in controls(chosen, box, "A") if one["path"].startswith(f"{path}.")]
        assert len(fields) <= pipeline.MOST_FIELDS
        for one in fields:
            assert len(one["stops"]) == len(set(one["stops"])) <= pipeline.MOST_STOPS + 3
            for at in (0, len(one["stops"]) - 1):
                try:
                    changed = change(chosen, one["path"], at)
                except ValueError:  # a rule of several fields together, such as Krum's
                    continue
                assert control(changed, one["path"])["at"] == at
            assert change(chosen, one["path"], one["at"]) == chosen
        assert stage == pipeline.stage_at(chosen, path.split("."))

    @pytest.mark.parametrize("name", ["workers", "compute", "straggler", "bandwidth", "latency"])
    def test_each_stop_of_the_network_is_taken_and_shown(self, name):
        for at in range(len(control(START, name)["stops"])):
            changed = change(START, name, at)
            if changed.link is None:
                assert (name, control(changed, name)["stops"][at]) == ("bandwidth", "no limit")
            assert control(changed, name)["at"] == at

    def test_the_slow_worker_is_the_last_one(self):
        slow = change(START, "straggler", control(START, "straggler")["stops"].index("4 × slower"))
        assert slow.delays == ps.Delays(0.005, {3: 4.0})
        assert change(slow, "workers", 1).delays == ps.Delays(0.005, {1: 4.0})
        assert change(slow, "workers", 7).delays == ps.Delays(0.005, {7: 4.0})

    @pytest.mark.parametrize(
        ("path", "to", "words"),
        [
            ("push.quantizer", "tokp", "Did you mean topk?"),
            ("push.quantizer.bits", 0, "no control 'push.quantizer.bits'"),
            ("workers", 99, "has stops from 0 to"),
            ("workers", "4", "has stops from 0 to"),
            ("optimizer.lr", -1, "has stops from 0 to"),
            ("seed", 1, "no control 'seed'"),
            ("aggregator", "krum", "needs at least"),
        ],
    )
    def test_an_impossible_change_is_a_sentence(self, path, to, words):
        with pytest.raises(ValueError, match=words):
            change(dataclasses.replace(START, workers=2), path, to)

    def test_a_box_shows_one_stage_for_all_tensors(self):
        mixed = dataclasses.replace(START, push=ps.Codec({"b": "exact", "*": "sign"}))
        with pytest.raises(ValueError, match="one quantizer for all tensors"):
            controls(mixed, "quantizer", "A")

    def test_stops_follow_the_field(self):
        bits = {"minimum": 1, "maximum": 8, "step": 1}
        assert stops(int, bits, 8, 3) == [1, 2, 3, 4, 5, 6, 7, 8]
        assert stops(int, {"minimum": 1, "maximum": 127}, 16, 5) == [1, 2, 4, 5, 8, 16, 32, 64, 127]
        assert stops(float, {"above": 0, "maximum": 1, "step": 0.01}, 0.01, 0.03) == [
            *(0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1),
        ]
        assert stops(float, {"minimum": 0, "below": 1, "step": 0.05}, 0.0, 0.9)[-2:] == [0.9, 0.95]

    def test_a_stage_says_its_help_and_its_source(self):
        said = pipeline.source_of(ps.Sign())
        assert said["help"].startswith("One bit per value")
        assert said["source"].startswith("@register\n@dataclass(frozen=True)\nclass Sign")
        assert said["place"].startswith("minips/stages/quantizers/signs.py, line")
        assert "`" not in said["help"]


class TestSettings:
    @pytest.mark.parametrize("setting", SETTINGS)
    def test_a_setting_differs_where_its_name_says(self, setting):
        sides = pipeline.sides_of(setting, START)
        differs = {
            "everybody waits or nobody": ["consistency"],
            "32 bits or one": ["memory", "quantizer"],
            "a server or a ring": ["exchange"],
            pipeline.PREDICTED: [],
        }
        assert pipeline.differences(sides) == differs[setting]

    def test_another_setting_is_refused(self):
        with pytest.raises(ValueError, match="There is no setting 'chaos'"):
            pipeline.sides_of("chaos", START)


class TestLine:
    @pytest.mark.parametrize(("path", "name"), list(stages()))
    def test_each_stage_travels_as_text(self, path, name):
        config = change(dataclasses.replace(START, workers=8), path, name)
        assert read_line(one_line(config)) == [config]

    @pytest.mark.parametrize(
        "config",
        [
            ps.Config(),
            ps.Config(link=ps.Link(), local=ps.LocalSteps(20), optimizer=ps.SGD(lr=1.0, schedule=ps.Cosine(20))),
            ps.Config(push=ps.Codec(ps.Adaptive(ladder=(ps.Exact(), ps.Float16())))),
            ps.Config(push=ps.Codec({"b": "exact", "*": ps.Uniform(4)}), epochs=3, batch_size=None),
            ps.Config(
                delays=ps.Delays(1 / 3, {0: 2.5, 3: 1e-9}, exponential=True), transport=ps.Tcp(authority="a, b='c'")
            ),
        ],
    )
    def test_each_config_travels_as_text(self, config):
        assert read_line(one_line(config)) == [config]
        assert read_line(one_line(config, START)) == [config, START]
        assert "\n" not in one_line(config)

    @pytest.mark.parametrize(
        "setting", [pytest.param(one, marks=pytest.mark.soak) if at else one for at, one in enumerate(SETTINGS)]
    )
    def test_playground_and_workbench_take_the_line(self, setting, problem):
        sides = pipeline.sides_of(setting, START)
        line = one_line(*sides.values())
        assert lab.playground(problem, line).configs == sides
        columns = lab.Workbench(problem, line, predict=False).columns
        assert [columns["A"].config(), columns["B"].config()] == [sides["A"], sides.get("B", sides["A"])]

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("", "Expected field=value"),
            ("worker=3", "Did you mean workers?"),
            ("workers=0", "at least 1"),
            ("push='quantizer=tokp'", "Did you mean topk?"),
            ("workers=2 | workers=3 | workers=4", "one for A and one for B; got 3"),
            ('{"workers": }', "is not JSON"),
        ],
    )
    def test_a_wrong_line_is_a_sentence(self, text, words):
        with pytest.raises(ValueError, match=words.replace("?", r"\?")):
            lab.playground(text)
        with pytest.raises(ValueError, match="got both"):
            lab.playground("workers=2", START)


ENCODINGS = [
    ps.Codec(),
    ps.Codec("float16"),
    ps.Codec("sign", "errorfeedback"),
    ps.Codec(ps.Uniform(bits=3), "delta"),
    ps.Codec("topk", "momentumcorrection", serializer="safetensors"),
    ps.Codec("exact", serializer="npy"),
]


class TestFunnel:
    @pytest.mark.parametrize("exchange", ["ps", "ring", "tree"])
    @pytest.mark.parametrize("push", ENCODINGS, ids=repr)
    def test_its_end_is_a_message_of_the_run(self, push, exchange, problem):
        if exchange != "ps" and isinstance(push.memory, ps.MomentumCorrection):
            pytest.skip("an all-reduce refuses this memory")
        config = dataclasses.replace(START, steps=7, push=push, exchange=ps.build("exchange", exchange))
        sizes = funnel.push_of(problem, config).sizes()
        sent = {
            message.nbytes
            for message in simulate(problem, config).messages
            if message.sender == "worker 0" and message.clock == funnel.STEPS
        }
        assert sizes["transport"] in sent
        assert list(sizes) == ["workers", "memory", "quantizer", "serializer", "compressor", "transport"]
        if exchange == "ps":
            assert sizes["workers"] == 4 * 33

    def test_a_piece_for_the_first_of_several_servers(self, problem):
        config = dataclasses.replace(START, steps=7, servers=3)
        sent = {
            m.nbytes for m in simulate(problem, config).messages if m.sender == "worker 0" and m.clock == funnel.STEPS
        }
        assert funnel.push_of(problem, config).sizes()["compressor"] in sent

    def test_a_compressor_narrows_it(self, problem):
        sizes = funnel.push_of(
            problem, dataclasses.replace(START, push=ps.Codec(serializer="json", compressor="zlib"))
        ).sizes()
        assert sizes["memory"] < sizes["compressor"] < sizes["serializer"]

    @pytest.mark.parametrize("box", BOXES)
    @pytest.mark.parametrize("exchange", ["ps", "ring"])
    def test_each_box_opens(self, box, exchange, problem):
        config = dataclasses.replace(
            START, push=ps.Codec("sign", "errorfeedback"), exchange=ps.build("exchange", exchange)
        )
        caption, before, after = funnel.before_and_after(problem, config, box)
        shown = funnel.views(before, after)
        expected = {"workers": ["after"], "exchange": [], "consistency": []}.get(box, ["before", "after"])
        assert [*shown] == ([] if exchange == "ring" and box in pipeline.SERVER else expected)
        assert caption or not shown
        for one in shown.values():
            assert [ElementTree.fromstring(one[name]).get("role") for name in ("histogram", "heat")] == ["img", "img"]

    def test_the_quantizer_changes_what_it_is_given(self, problem):
        config = dataclasses.replace(START, push=ps.Codec("sign", "errorfeedback"))
        _, before, after = funnel.before_and_after(problem, config, "quantizer")
        assert len(np.unique(after)) == 2 < len(np.unique(before))
        _, gradient, compensated = funnel.before_and_after(problem, config, "memory")
        assert not np.array_equal(gradient, compensated)
        assert np.array_equal(compensated, before)

    def test_the_optimizer_steps_along_the_aggregate(self, problem):
        config = dataclasses.replace(START, optimizer=ps.SGD(lr=0.5))
        _, _, mean = funnel.before_and_after(problem, config, "aggregator")
        _, before, after = funnel.before_and_after(problem, config, "optimizer")
        np.testing.assert_allclose(before - after, 0.5 * mean, rtol=1e-5)

    def test_a_step_that_overflows_is_drawn(self, problem):
        _, before, after = funnel.before_and_after(
            problem, dataclasses.replace(START, optimizer=ps.SGD(lr=1e300)), "optimizer"
        )
        assert not np.isfinite(after).all()
        assert funnel.views(before, after)["after"]["what"].startswith("30 values")

    def test_a_heat_map_has_a_digit_for_each_value(self):
        assert funnel.levels(np.float32([[-1, -0.25, 0], [0.0625, 0.25, 1]]), 1.0) == ["024", "568"]
        assert funnel.levels(np.float32([[-1, 0], [0, 1], [1, 1]]), 1.0) == ["048", "488"]  # lying on its longer side
        assert funnel.levels(np.uint8([0, 128, 255]), 255.0) == ["048"]
        assert [len(row) for row in funnel.levels(np.zeros(5000), 1.0)] == [funnel.COLUMNS] * funnel.ROWS

    def test_a_histogram_counts_logarithmically(self):
        tall = funnel.heights(np.float32([-1, 0, 0, 0, 0, 0, 0, 0, 1]), 1.0)
        assert (tall[0], tall[funnel.BINS // 2], tall[-1]) == (round(np.log(2) / np.log(8), 3), 1.0, tall[0])
        assert sum(each > 0 for each in tall) == 3

    def test_the_widths_of_the_strips_are_bytes(self):
        sizes = {"workers": 1000, "memory": 1000, "quantizer": 250, "serializer": 500, "compressor": 500}
        pieces = drawings.strips({"A": sizes, "B": {**sizes, "quantizer": 1000}}, "A")
        assert "d='M0 0.0L100 21.0V35.0L0 56.0Z'" in pieces["quantizer"]  # from 56 high to 14
        assert "d='M0 21.0L100 14.0V42.0L0 35.0Z'" in pieces["serializer"]
        assert pieces["quantizer"].count("play-other") == 1


class TestOutcomes:
    def test_every_message_of_the_run_moves_once(self, problem):
        run = simulate(problem, dataclasses.replace(START, steps=5))
        moved = outcomes.movement_of(run)
        there = [one for one in run.messages if one.start is not None and one.end is not None and one.start >= 0]
        assert len(moved["start"]) == len(there) >= 2 * 4 * 5
        assert sum(moved["bytes"]) == sum(one.nbytes for one in there)
        np.testing.assert_allclose(moved["end"], [one.end for one in there], atol=1e-6)
        assert {*moved["way"]} == {PUSHED, ANSWERED}
        assert {*moved["worker"]} == {0, 1, 2, 3}
        assert moved["note"] == "Every dot is a message of the run."
        assert {*outcomes.movement_of(simulate(problem, change(START, "exchange", "ring")))["way"]} == {PASSED_ON}

    def test_of_many_messages_the_first_workers_move(self, problem, monkeypatch):
        run = simulate(problem, dataclasses.replace(START, steps=5))
        monkeypatch.setattr(outcomes, "MOST_MESSAGES", 25)
        moved = outcomes.movement_of(run)
        assert {*moved["worker"]} < {0, 1, 2, 3}
        assert "of worker" in moved["note"]

    def test_a_wait_names_whom_it_is_for(self, problem):
        run = simulate(problem, pipeline.sides_of(next(iter(SETTINGS)), START)["A"])
        first, *_, last = outcomes.activity_of(run)
        assert "worker 3" in first["waits"]
        assert not any(last["waits"])
        assert first["shares"][2] > 0.4 > 0.1 > last["shares"][2]
        assert sum(first["shares"]) == pytest.approx(1, abs=1e-3)
        assert "waits" in first["words"]
        assert "waits" not in last["words"]

    def test_bars_have_the_outline_of_what_was_expected(self, problem):
        config = dataclasses.replace(START, steps=8)
        run = simulate(problem, config)
        outcome = PlayedRun(run, expected_bytes=outcomes.expected_bytes(problem, config))
        sent, took = outcomes.bars({"A": outcome}, {})
        assert sent["rows"][0]["text"] == base.format_bytes(run.bytes_sent)
        assert sent["rows"][0]["outline"] == sent["rows"][0]["share"] == 1.0  # these bytes can be counted exactly
        assert took["rows"][0]["outline"] is None
        half = ps.Progress(16, 32, run.losses[:4])
        assert outcomes.bars({"A": outcome}, {"A": half})[0]["rows"][0]["share"] == 0.5
        real = outcome.with_run(dataclasses.replace(run, seconds=2 * run.seconds))
        row = outcomes.bars({"A": real}, {})[1]["rows"][0]
        assert (row["share"], row["outline"], row["grows"]) == (1.0, 0.5, False)

    @pytest.mark.parametrize("setting", SETTINGS)
    def test_bytes_are_expected_for_each_setting(self, setting, problem):
        for config in pipeline.sides_of(setting, dataclasses.replace(START, steps=6)).values():
            expected, sent = outcomes.expected_bytes(problem, config), simulate(problem, config).bytes_sent
            assert expected == pytest.approx(sent, rel=0.02 if config.consistency == ps.BSP() else 0.15)

    def test_a_simulated_run_has_no_times_and_a_real_one_has(self, problem):
        config = ps.Config(steps=6, workers=2, push=ps.Codec("sign", "errorfeedback"), transport="inproc")
        assert outcomes.stage_seconds(PlayedRun(simulate(problem, config))) == {}
        run = ps.train(problem, config, engine="threads")
        times = outcomes.stage_seconds(PlayedRun(run, measured=True))
        assert {"memory", "quantizer", "serializer", "aggregator", "optimizer", "workers"} <= {*times}
        assert all(text.endswith("s") for text in times.values())
        assert outcomes.box_words("quantizer", 98, times) == f"98 B · {times['quantizer']}"
        assert outcomes.box_words("quantizer", 98, {}) == "98 B · –"
        assert outcomes.box_words("consistency", None, times) == ""

    def test_the_sentence_says_what_is_seen(self, problem):
        slow, ring = (
            {side: PlayedRun(simulate(problem, config)) for side, config in pipeline.sides_of(setting, START).items()}
            for setting in [*SETTINGS][1:3]
        )
        one, other = slow.values()
        sent = other.run.bytes_sent / one.run.bytes_sent
        words = outcomes.sentence(slow)
        assert f"A and B differ in memory and quantizer. B sends {sent:.2f} × A's bytes" in words
        assert f"Accuracy: {one.run.accuracy:.3f} in A, {other.run.accuracy:.3f} in B." in words
        assert "A and B differ in exchange." in outcomes.sentence(ring)
        alone = outcomes.sentence({"A": one})
        assert alone.startswith("4 workers send ")
        assert "of virtual time" in alone
        assert "of virtual time" not in outcomes.sentence({"A": one.with_run(one.run)})
        assert outcomes.sentence({}) == "Nothing has run yet."

    def test_the_sentence_says_if_bytes_do_not_decide(self, problem):
        fast = dataclasses.replace(START, link=ps.Link(1e10, 1e-3))
        small = dataclasses.replace(fast, push=ps.Codec("sign", "errorfeedback"))
        found = {side: PlayedRun(simulate(problem, one)) for side, one in zip("AB", (fast, small), strict=True)}
        assert "bytes do not decide here" in outcomes.sentence(found)

    def test_the_sentence_says_if_a_run_diverged(self, problem):
        run = simulate(problem, dataclasses.replace(START, optimizer=ps.SGD(lr=1e300)))
        assert run.diverged
        assert outcomes.sentence({"A": PlayedRun(run)}).startswith("A diverged. ")
        json.dumps(outcomes.curve([(0.1, 1, float("nan")), *run.losses], "A"), allow_nan=False)


class TestPlayground:
    def test_it_runs_at_once(self, problem):
        play = lab.playground(problem)
        assert play.runs["A"].config == START
        data = play.view.data
        json.dumps(data, allow_nan=False)
        assert [box["name"] for box in data["boxes"]] == [*BOXES]
        assert (data["busy"], data["error"], data["turn"]) == ("", "", 1)
        assert data["duration"] == play.runs["A"].seconds
        assert data["moves"]["A"]["start"]
        assert play.view.sentence.startswith("4 workers send ")
        assert repr(play) == play.view.sentence

    def test_a_change_runs_the_changed_side_alone(self, problem):
        play = lab.playground(problem, engine="threads")
        asked(play, do="compare", on=True)
        kept = play.runs["A"]
        data = asked(play, do="change", path="push.quantizer", to="sign")
        assert (data["sides"], data["shown"]) == (["A", "B"], "B")
        assert play.runs["A"] is kept
        assert play.runs["B"].config.push.quantizer == ps.Sign()
        assert "quantizer ≠" in [box["title"] for box in data["boxes"]]
        assert "play-pale" in data["chart"]
        assert data["turn"] == 3
        assert asked(play, do="show", side="A")["boxes"][2]["controls"][0]["value"] == "exact"
        assert asked(play, do="compare", on=False)["sides"] == ["A"]

    @pytest.mark.parametrize(
        ("question", "words"),
        [
            ({"do": "change", "path": "push.quantizer", "to": "tokp"}, "Did you mean topk?"),
            ({"do": "change", "path": "aggregator", "to": "majorityvote"}, ""),
            ({"do": "open", "box": "lid"}, "There is no box 'lid'."),
            ({"do": "choose", "setting": "chaos"}, "There is no setting 'chaos'."),
            ({"do": "__init__"}, "The playground cannot '__init__'."),
            ({"do": "change"}, "missing 2 required positional arguments"),
            ({}, "The playground cannot None."),
        ],
    )
    def test_an_error_is_a_sentence_and_the_rest_stays(self, question, words, problem):
        play = lab.playground(problem)
        before = play.view.sentence
        data = asked(play, **question)
        assert words in data["error"]
        if words:
            assert (play.view.sentence, play.configs) == (before, {"A": START})
        assert asked(play, **question) != data  # else the page would go on showing what was chosen
        assert asked(play, do="open", box="memory")["error"] == ""

    def test_a_run_that_fails_is_a_sentence(self):
        class Broken(ps.SoftmaxRegression):
            def loss_and_gradient(self, params, rows=None):
                raise ZeroDivisionError("The rows are gone.")

        play = lab.playground(Broken(*ps.datasets.synthetic(rows=64, classes=2)))
        assert "The rows are gone." in play.view.data["error"]
        assert play.view.sentence == "Nothing has run yet."

    def test_a_setting_can_be_left_again(self, problem):
        play = lab.playground(problem, "workers=2, steps=4 | workers=2, steps=4, consistency=asp")
        before = dict(play.configs)
        assert asked(play, do="choose", setting="32 bits or one")["setting"] == "32 bits or one"
        assert asked(play, do="change", path="push.quantizer", to="exact")["setting"] == ""
        assert asked(play, do="choose", setting="")["sides"] == ["A", "B"]
        assert play.configs == before

    def test_an_all_reduce_has_no_server(self, problem):
        play = lab.playground(problem, "workers=4, steps=4, exchange=ring")
        data = play.view.data
        assert (data["back"], data["ends"]["right"]) == ([], "the other workers")
        assert data["words"]["back"].startswith("No way back")
        assert "takes consistency=BSP" in asked(play, do="change", path="consistency", to="asp")["error"]

    def test_one_line_and_code_make_the_same_configs(self, problem):
        play = lab.playground(problem)
        data = asked(play, do="choose", setting=[*SETTINGS][1])
        assert lab.playground(problem, data["line"]).configs == play.configs
        names = {"ps": ps, "__name__": "a module"}
        exec(data["code"], names)
        assert names["problem"] is ...
        assert {"A": names["a"], "B": names["b"]} == play.configs
        usual = lab.playground("workers=1, steps=2")
        assert usual.configs["A"] == ps.Config(workers=1, steps=2)
        assert "problem = ps.SoftmaxRegression(*ps.datasets.digits())" in usual.view.data["code"].splitlines()

    def test_for_real_fills_what_was_expected(self, problem):
        play = lab.playground(problem, "workers=2, steps=8, push='quantizer=sign'", engine="threads")
        simulated = play.runs["A"]
        data = asked(play, do="run")
        assert play.runs["A"] is not simulated
        assert play.runs["A"].params.keys() == simulated.params.keys()
        np.testing.assert_array_equal(play.runs["A"].params["W"], simulated.params["W"])
        sent, took = data["bars"]
        assert sent["rows"][0]["outline"] == sent["rows"][0]["share"]
        assert took["rows"][0]["outline"] is not None
        assert "µs" in data["boxes"][2]["text"] or "ms" in data["boxes"][2]["text"]
        assert "of virtual time" not in play.view.sentence

    def test_a_run_for_real_stops_and_shows_itself_meanwhile(self, problem):
        seen = threading.Event()
        play = lab.playground(problem, "workers=2, steps=12", engine="threads")
        endless = dataclasses.replace(play.configs["A"], steps=100_000, delays=ps.Delays(0.002))
        with play.job.lock:
            play.configs = {"A": endless}
            play.outcomes = {"A": PlayedRun(dataclasses.replace(play.runs["A"], config=endless))}
        draw = play.view.show

        def show(**shown):
            draw(**shown)
            if "trains for real" in shown["data"]["busy"]:
                seen.set()

        play.view.show = show
        play.answer({"do": "run"})
        assert seen.wait(ENDING_S)
        data = asked(play, do="stop")
        assert play.runs["A"].stopped
        assert data["busy"] == ""
        assert "was stopped early" in play.view.sentence

    @pytest.mark.soak
    def test_a_calibration_predicts_the_times(self, problem):
        play = lab.playground(problem, "workers=2, steps=6, transport=inproc", engine="threads")
        data = asked(play, do="calibrate")
        assert data["error"] == ""
        assert "≈" in data["boxes"][2]["text"]
        assert data["bars"][1]["rows"][0]["outline"] is not None
        data = asked(play, do="run")
        assert "a step was predicted to take" in play.view.sentence

    def test_a_stage_of_ones_own_is_offered_and_may_be_defined_again(self, problem):
        play = lab.playground(problem, "workers=2, steps=4")

        def define(scale):
            @ps.register
            @dataclasses.dataclass(frozen=True)
            class Scaled(ps.Exact):
                name = "scaled"

                def decode(self, parts):
                    return super().decode(parts) * np.float32(scale)

        try:
            define(0.5)
            play.refresh()
            assert "scaled" in play.view.data["boxes"][2]["controls"][0]["options"]
            asked(play, do="change", path="push.quantizer", to="scaled")
            first = play.runs["A"].losses[-1]
            define(2.0)
            play.refresh()
            assert play.wait(ENDING_S)
            assert play.runs["A"].losses[-1] < first
        finally:
            del stage_module._KINDS["quantizer"]["scaled"]

    def test_a_run_for_real_simulates_nothing_again(self, problem):
        play = lab.playground(problem, "workers=2, epochs=1", engine="threads")
        assert play.runs["A"].config.epochs is None
        assert asked(play, do="run")["turn"] == 2

    @pytest.mark.parametrize("wrong", [(42,), (None, 42), (None, [START, 42])])
    def test_a_wrong_argument_is_a_sentence(self, wrong):
        with pytest.raises(TypeError, match="playground takes"):
            lab.playground(*wrong)

    def test_another_panel_of_the_same_cell_replaces_it(self, problem):
        play, again = lab.playground(problem), lab.playground(problem)
        assert play.name == again.name
        assert asked(again, do="change", path="push.quantizer", to="float16")["error"] == ""

    def test_the_still_is_a_picture_with_text(self, problem):
        play = lab.playground(problem)
        asked(play, do="choose", setting=[*SETTINGS][1])
        picture = ElementTree.fromstring(play.view.still)
        words = {one.text for one in picture.iter("{http://www.w3.org/2000/svg}text")}
        assert {"quantizer ≠", "sign", "msgpack", "A", "B"} <= words
        content, _ = play._repr_mimebundle_()
        assert play.view.still in content["text/html"]
        assert content["text/plain"] == play.view.sentence

    def test_without_anywidget_the_still_stands_alone(self, problem, monkeypatch):
        monkeypatch.setattr(base, "find_spec", lambda name: None)
        play = lab.playground(problem)
        content, _ = play._repr_mimebundle_()
        assert [*content] == ["text/html", "text/plain"]
        assert base.MISSING.replace('"', "&quot;") in content["text/html"]
        assert play.view.still in content["text/html"]

    @pytest.mark.parametrize("servers", [1, 2])
    def test_a_table_has_a_pipeline(self, servers):
        clicks = ps.ClickModel(*ps.datasets.clicks(rows=300, items=50))
        play = lab.playground(clicks, f"workers=2, steps=8, servers={servers}, push='quantizer=float16'")
        assert play.runs["A"].updates == 16
        sizes = funnel.push_of(clicks, play.configs["A"]).sizes()
        first = {m.nbytes for m in play.runs["A"].messages if (m.sender, m.receiver) == ("worker 0", "server 0")}
        assert sizes["transport"] in first
        for box in BOXES:
            assert asked(play, do="open", box=box)["error"] == ""

    def test_a_run_that_takes_no_time_says_so(self, problem):
        assert "Nothing takes time here" in lab.playground(problem, "workers=2, steps=4").view.sentence


def test_the_teachers_page_has_a_line_that_can_be_sent(problem):
    page = (Path(__file__).parents[1] / "docs" / "teachers.md").read_text(encoding="utf-8")
    line = " ".join(re.search(r"a text such as `([^`]+)`", page)[1].split())
    assert (
        one_line(*lab.playground(problem, line).configs.values())
        == "workers=2, steps=40 | push='quantizer=sign', workers=2, steps=40"
    )
