"""The protocol is told once: a change of its text changes a run, a simulation and a prediction alike."""

import inspect
from collections import Counter

import numpy as np
import pytest
from test_golden import CLOCKS, CONFIGS, told

import minips as ps
from minips.cost import probe, walk
from minips.cost.simulate import mutual
from minips.runtime import peer, sessions
from minips.runtime.reduction import Reduction

EXCHANGES = {"ring": 4, "tree": 5, "halvingdoubling": 8}
MUTATIONS = {
    "the last reduce hop is left out": (
        "for number, hop in enumerate(part.hops):\n",
        "for number, hop in enumerate(part.hops):\n"
        "        if hop.adds and not part.hops[number + 1].adds:\n            continue\n",
        {"threads", "simulated", "predicted"},
    ),
    "a hop forgets its sum": (
        "partial(part.incoming, number, parcel)",
        "(lambda: None) if hop.adds else partial(part.incoming, number, parcel)",
        {"threads", "simulated"},  # where something is computed
    ),
}


@pytest.mark.parametrize("mutation", MUTATIONS)
@pytest.mark.parametrize("name", ["ring", "tree, eight bits", "halving-doubling, overlap"])
def test_a_change_of_the_all_reduce_shows_under_every_clock(
    name: str, mutation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after, clocks = MUTATIONS[mutation]
    source = inspect.getsource(sessions.all_reduce)
    assert source.count(before) == 1
    right = {clock: told(name, clock) for clock in CLOCKS}
    made: dict[str, object] = {}
    exec(source.replace(before, after), vars(sessions).copy(), made)
    for module in (peer, mutual, walk):
        monkeypatch.setattr(module, "all_reduce", made["all_reduce"])
    for clock in CLOCKS:
        found = told(name, clock)
        told_apart = (found["parameters"], found["seconds"]) if clock == "simulated" else found
        known = (right[clock]["parameters"], right[clock]["seconds"]) if clock == "simulated" else right[clock]
        assert (told_apart != known) == (clock in clocks), clock


@pytest.mark.parametrize("name", EXCHANGES)
def test_by_turns_and_by_sizes_alone_the_same_is_said(name: str) -> None:
    workers, exchange = EXCHANGES[name], ps.stage.build("exchange", name)
    gradients = [{"w": np.arange(17, dtype="f4") + rank} for rank in range(workers)]
    parts = [
        Reduction(exchange, rank, workers, gradients[0], ps.Codec(), np.random.default_rng(0), ps.Trace())
        for rank in range(workers)
    ]
    for part, own in zip(parts, gradients, strict=True):
        part.begin(0, own)
    means = sessions.carry_out_together([sessions.all_reduce(part) for part in parts])
    assert all((mean["w"] == means[0]["w"]).all() for mean in means)
    np.testing.assert_allclose(means[0]["w"], np.mean([own["w"] for own in gradients], axis=0), rtol=1e-6)

    sizes = [walk.Declared(part.hops, [float(i) for i in range(len(part.hops))], part.sizes) for part in parts]
    scripts = [sessions.script(sessions.all_reduce(size)) for size in sizes]
    sent = Counter(
        (rank, need.to, need.number)
        for rank, needs in enumerate(scripts)
        for need in needs
        if isinstance(need, sessions.Send)
    )
    come = Counter(
        (need.source, rank, need.number)
        for rank, needs in enumerate(scripts)
        for need in needs
        if isinstance(need, sessions.Receive)
    )
    assert sent == come, "every message is received, at the hop at which it was sent"
    assert all(count == 1 for count in sent.values())


def test_a_probe_of_steps_makes_the_same_steps() -> None:
    config = ps.Config.from_dict({**CONFIGS["ring"].to_dict(), "steps": 4, "batch_size": None})
    problem = ps.SoftmaxRegression(*ps.datasets.synthetic(rows=64, features=5, classes=3))
    run = ps.train(problem, config, engine="threads")
    *_, params = probe.rounds(problem, config)
    assert all((params[name] == run.params[name]).all() for name in params)
