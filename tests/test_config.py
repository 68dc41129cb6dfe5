"""An experiment is a value: it checks itself, prints as its code, and goes to JSON and back."""

import dataclasses
import json

import numpy as np
import pytest

import minips as ps

CONFIGS = [
    ps.Config(),
    ps.Config(
        push=ps.Codec(quantizer=ps.TopK(fraction=0.01), memory=ps.ErrorFeedback(), compressor=ps.Lz4()),
        pull=ps.Codec(serializer=ps.Json()),
    ),
    ps.Config(consistency=ps.SSP(staleness=3), transport=ps.InProc(), workers=2, servers=3, steps=7, seed=5),
    ps.Config(link=ps.Link(bandwidth_bps=1e6, latency_s=0.0), batch_size=None, accumulate=2, overlap=True),
    ps.Config(delays=ps.Delays(seconds=0.5, slow={0: 2.0, 3: 0.5}, exponential=True)),
    ps.Config(consistency=ps.BSP(backup=1), aggregator=ps.Median(), optimizer=ps.Adam(lr=0.01), timeout_s=1.5),
    ps.Config(optimizer=ps.SGD(lr=0.5, momentum=0.9, nesterov=True), transport=ps.Pipe(), exchange=ps.PS()),
]


@pytest.mark.parametrize("config", CONFIGS, ids=range(len(CONFIGS)))
def test_a_config_comes_back_from_json(config):
    again = ps.Config.from_dict(json.loads(json.dumps(config.to_dict())))
    assert again == config
    assert repr(again) == repr(config)


@pytest.mark.parametrize("config", CONFIGS, ids=range(len(CONFIGS)))
def test_a_repr_is_the_code_that_makes_it(config):
    assert eval(repr(config), vars(ps)) == config


@pytest.mark.parametrize(
    ("config", "code"),
    [
        (ps.Config(), "Config()"),
        (ps.Config(workers=2, seed=0), "Config(workers=2)"),
        (ps.Config(push=ps.Codec("topk")), "Config(push=Codec(quantizer=TopK(fraction=0.01)))"),
        (ps.Config(consistency="asp", link=ps.Link(latency_s=0.5)), None),
    ],
)
def test_a_repr_has_only_what_differs_from_the_defaults(config, code):
    assert repr(config) == (code or f"Config(consistency=ASP(), link={config.link!r})")


@pytest.mark.parametrize("change", [{"steps": 201}, {"seed": 1}, {"consistency": ps.ASP()}, {"link": ps.Link()}])
def test_configs_differ_where_a_field_does(change):
    assert dataclasses.replace(ps.Config(), **change) != ps.Config()


def test_stages_may_be_names_or_dicts():
    config = ps.Config(
        consistency="ssp",
        optimizer={"name": "adam", "lr": 0.5},
        transport="inproc",
        push={"quantizer": {"name": "topk", "fraction": 0.2}, "memory": "errorfeedback"},
        link={"latency_s": 0.25},
        delays={"slow": {"1": 3}},
    )
    assert config.consistency == ps.SSP()
    assert config.optimizer == ps.Adam(lr=0.5)
    assert config.push == ps.Codec(quantizer=ps.TopK(fraction=0.2), memory=ps.ErrorFeedback())
    assert config.link == ps.Link(latency_s=0.25)
    assert config.delays == ps.Delays(slow={1: 3.0})


def test_keys_of_delays_are_whole_numbers_again_after_json():
    config = ps.Config.from_dict(json.loads(json.dumps(CONFIGS[4].to_dict())))
    assert list(config.delays.slow) == [0, 3]
    assert config.delays.of(3, 0, seed=0) == CONFIGS[4].delays.of(3, 0, seed=0)


def test_numbers_of_numpy_become_plain_ones():
    config = ps.Config(workers=np.int64(3), timeout_s=np.float32(2.0))
    assert (type(config.workers), type(config.timeout_s)) == (int, float)
    assert json.dumps(config.to_dict())


@pytest.mark.parametrize(
    ("fields", "near"),
    [
        ({"worker": 4}, "workers"),
        ({"batchsize": 4}, "batch_size"),
        ({"push": {"quantiser": "topk"}}, "quantizer"),
        ({"push": {"quantizer": {"name": "topk", "fractoin": 0.1}}}, "fraction"),
        ({"link": {"bandwith_bps": 1.0}}, "bandwidth_bps"),
        ({"optimizer": "agadrad"}, "adagrad"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_name(fields, near):
    with pytest.raises(ValueError, match=rf"Did you mean {near}\?"):
        ps.Config.from_dict(fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"workers": 0},
        {"workers": -1},
        {"workers": 2.5},
        {"workers": True},
        {"servers": 0},
        {"steps": 0},
        {"batch_size": 0},
        {"accumulate": 0},
        {"seed": -1},
        {"timeout_s": 0.0},
        {"timeout_s": float("nan")},
        {"overlap": 1},
        {"consistency": "bsq"},
        {"consistency": ps.SGD()},
        {"push": "topk"},
        {"optimizer": {"lr": 0.1}},
        {"optimizer": {"name": "sgd", "lr": 0}},
        {"link": {"bandwidth_bps": 0.0}},
        {"link": {"latency_s": -1.0}},
        {"delays": {"seconds": -1.0}},
        {"delays": {"slow": {-1: 2.0}}},
        {"delays": {"slow": {1: -2.0}}},
        {"delays": {"slow": {1: float("inf")}}},
    ],
    ids=repr,
)
def test_what_is_out_of_its_limits_is_refused(fields):
    with pytest.raises(ValueError, match=r"\w+ .*(got|needs|named)"):
        ps.Config(**fields)


@pytest.mark.parametrize("seconds", [float("inf"), 1e20, float("nan"), 0.0])
def test_a_time_out_that_nobody_can_wait_for_is_refused(seconds):
    with pytest.raises(ValueError, match=r"timeout_s must be above 0 and at most 1e\+06; got"):
        ps.Config(timeout_s=seconds)


@pytest.mark.parametrize("fields", [[], None, 5, "asp"])
def test_a_config_is_made_of_a_mapping(fields):
    with pytest.raises(TypeError, match=r"Config\.from_dict takes a mapping of fields to values.*got"):
        ps.Config.from_dict(fields)


def test_delays_of_a_worker_that_there_is_not_are_refused():
    with pytest.raises(ValueError, match=r"worker 4, but workers are 0 to 3 only"):
        ps.Config(delays=ps.Delays(slow={4: 2.0}))


def test_more_backup_workers_than_workers_are_refused():
    with pytest.raises(ValueError, match="needs more than 2 workers"):
        ps.Config(consistency=ps.BSP(backup=2), workers=2)


def test_delays_multiply_and_repeat():
    delays = ps.Delays(seconds=0.5, slow={1: 4.0})
    assert [delays.of(worker, 0, seed=0) for worker in (0, 1)] == [0.5, 2.0]
    drawn = ps.Delays(seconds=0.5, slow={1: 4.0}, exponential=True)
    times = [drawn.of(1, clock, seed=7) for clock in range(2000)]
    assert times == [drawn.of(1, clock, seed=7) for clock in range(2000)]
    assert times != [drawn.of(1, clock, seed=8) for clock in range(2000)]
    assert np.mean(times) == pytest.approx(2.0, rel=0.1)


def test_a_config_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        ps.Config().workers = 2


@pytest.mark.parametrize(
    ("fields", "same"),
    [
        ({"optimizer": "adam:lr=0.1"}, {"optimizer": ps.Adam(lr=0.1)}),
        ({"consistency": "ssp:staleness=3"}, {"consistency": ps.SSP(3)}),
        ({"transport": "tcp:pool=1"}, {"transport": ps.Tcp(pool=1)}),
        ({"push": {"quantizer": "topk:fraction=0.1"}}, {"push": ps.Codec(ps.TopK(0.1))}),
        (
            {"push": "quantizer=topk(fraction=0.1),memory=errorfeedback"},
            {"push": ps.Codec(ps.TopK(0.1), "errorfeedback")},
        ),
        (
            {"push": ps.Codec({"b": "exact", "*": "topk:fraction=0.1"})},
            {"push": ps.Codec({"b": "exact", "*": ps.TopK(0.1)})},
        ),
        ({"link": "bandwidth_bps=1e7,latency_s=0"}, {"link": ps.Link(1e7, 0)}),
        ({"delays": "seconds=0.1,slow={1: 5}"}, {"delays": ps.Delays(0.1, {1: 5.0})}),
        ({"local": "steps=2,optimizer=sgd(lr=0.5)"}, {"local": ps.LocalSteps(2, ps.SGD(0.5))}),
    ],
    ids=lambda fields: "".join(fields),
)
def test_a_stage_as_text_is_taken_by_every_way_to_make_a_config(fields, same):
    config = ps.Config(workers=4, **same)
    assert ps.Config(workers=4, **fields) == ps.Config.from_dict({"workers": 4, **fields}) == config
    assert ps.Config(workers=4).with_(fields) == config
    assert ps.Config.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_an_engine_and_what_is_within_it_are_taken_as_text():
    star = ps.Simulated(topology="star:bandwidth_bps=1e8,latency_s=0.001")
    assert star == ps.build("engine", "simulated:topology=star(bandwidth_bps=1e8,latency_s=0.001)")
    run = ps.train(ps.LinearRegression([[1.0]], [1.0]), ps.Config(workers=1, steps=4), engine="simulated:compute_s=0.5")
    assert run.seconds == 2.0
    with pytest.raises(ValueError, match=r"no topology named 'stars'\. Known: .*Did you mean star\?"):
        ps.Simulated(topology="stars:bandwidth_bps=1e8")
    with pytest.raises(ValueError, match=r"Config\.link takes a Link, got 'fast'"):
        ps.Config(link="fast")
