"""What a saved run holds: the schema says all of it, a state that lacks something is refused, and old files go on."""

import copy
from collections.abc import Mapping
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints, is_typeddict

import numpy as np
import pytest

import minips as ps
from minips.results.state import LeftState, SavedState, ServerState
from minips.training import byhand

rng = np.random.default_rng(0)
X = rng.normal(size=(8, 2)).round(2)
PROBLEM = ps.LinearRegression(X, X @ [1.0, -1.0])
LOCAL = {"local": ps.LocalSteps(2, ps.Adam(lr=0.01)), "optimizer": ps.SGD(lr=1.0), "overlap": True}
TOPK = ps.Codec(ps.TopK(0.5), ps.ErrorFeedback())
DELTA = ps.Codec(ps.Uniform(bits=8), ps.Delta())
CONFIGS = {
    "servers": {"push": TOPK, "pull": DELTA, "servers": 2, **LOCAL},
    "ranks": {"push": TOPK, "exchange": ps.RingAllReduce(), **LOCAL},
    "asp": {"push": DELTA, "optimizer": "adam", "consistency": "asp"},
    "few_servers": {"push": TOPK, "pull": DELTA, "optimizer": "adam"},
    "few_ranks": {"push": TOPK, "exchange": ps.TreeAllReduce(), "optimizer": ps.SGD(lr=0.1, momentum=0.9)},
}


def config(name, steps):
    return ps.Config(workers=2, batch_size=2, steps=steps, **CONFIGS[name])


def trained(name, steps=8, **options):
    return ps.train(PROBLEM, config(name, steps), engine="simulated", **options)


def walk(kind, value, path=()):
    """Each part in a value, its place, and its kind. AssertionError where a value is not as the schema says."""
    options = get_args(kind) if isinstance(kind, UnionType) else (kind,)
    if Any in options or (value is None and type(None) in options):
        return
    (hint, *_), inner = options, get_args(options[0])
    if is_typeddict(hint):
        hints = get_type_hints(hint)
        assert hint.__required_keys__ <= value.keys() <= hints.keys(), path
        yield hint, path
        for key in value:
            yield from walk(hints[key], value[key], (*path, key))
        return
    assert isinstance(value, get_origin(hint) or hint), path
    for key in (value if isinstance(value, Mapping) else range(len(value))) if inner else ():
        yield from walk(inner[-1], value[key], (*path, key))


@pytest.mark.parametrize("name", CONFIGS)
def test_the_schema_says_all_that_a_saved_run_holds(name, tmp_path):
    run = trained(name)
    run.save(tmp_path / "run.npz")
    for state in (run.state, ps.Run.load(tmp_path / "run.npz").state):
        kinds = {hint.__name__ for hint, _ in walk(SavedState, state)}
        links = {"ServerState", "LinkState"} if state["servers"] else set()
        assert kinds == {"SavedState", "WorkerState", "ShardState", "CodecState", *links} - (
            set() if links else {"CodecState"}  # those of hops are in lists with numbers
        )


def test_a_server_started_by_hand_gets_what_its_workers_left():
    state = trained("servers").state
    with byhand.serving(PROBLEM, config("servers", 8), None, "t") as one:
        layouts = [server.layout for server in one.servers]
    for index, layout in enumerate(layouts):
        server = byhand.server_state(state, index, layout)
        assert len([hint for hint, _ in walk(ServerState, server) if hint is LeftState]) == 2


def taken(state, path):
    for key in path:
        state = state[key]
    return state


@pytest.mark.parametrize("name", CONFIGS)
def test_a_state_that_lacks_a_key_is_refused_before_anything_begins(name):
    run = trained(name)
    whole, places = run.state, [*walk(SavedState, run.state)]
    assert len(places) > 4
    for hint, path in places:
        for key in hint.__required_keys__:
            run.state = copy.deepcopy(whole)
            del taken(run.state, path)[key]
            with pytest.raises(ValueError, match=rf"^This is not from a saved run: the run.* lacks '{key}'\.$"):
                trained(name, 16, resume=run)
    for _, path in places[1:]:
        run.state = copy.deepcopy(whole)
        taken(run.state, path[:-1])[path[-1]] = 5
        with pytest.raises(ValueError, match=r"^This is not from a saved run: the run.* lacks '"):
            trained(name, 16, resume=run)


@pytest.mark.parametrize("name", ["few_servers", "few_ranks"])
def test_a_file_of_an_earlier_release_goes_on_as_if_it_had_never_ended(name):
    """The files hold four steps of `trained`: memories, and what Adam or a momentum keeps; the trace is empty."""
    old = Path(__file__).parent / f"saved_{name}.npz"
    rest, whole = trained(name, 16, resume=old), trained(name, 16)
    assert rest.updates == whole.updates
    for key, p in whole.params.items():
        np.testing.assert_allclose(rest.params[key], p, rtol=1e-9, atol=1e-12)
    fresh = ps.Run.load(old)
    for worker in fresh.state["workers"]:
        ends = worker["links"] if "links" in worker else [{"encoder": one[2]} for one in worker["hops"]["encoders"]]
        for end in ends:
            end["encoder"]["memory"] = {}
    other = trained(name, 16, resume=fresh).params
    assert any(not np.allclose(other[key], p, rtol=1e-9, atol=1e-12) for key, p in whole.params.items())
