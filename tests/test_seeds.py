"""No two streams of one seed coincide."""

import inspect
import itertools

import numpy as np
import pytest

import minips as ps
from minips import datasets, seeds

STREAMS = {
    name: stream
    for name, stream in vars(seeds).items()
    if inspect.isfunction(stream) and not name.startswith("_") and name != "options"
}
"""Those that follow from a seed; the order of a question's options follows from the question."""
PLACES = (0, 1, 2, 5, 2**32 - 1)


def states(seed: int) -> dict[tuple[str, tuple[int, ...]], int]:
    found = {}
    for name, stream in STREAMS.items():
        for where in itertools.product(PLACES, repeat=len(inspect.signature(stream).parameters) - 1):
            found[name, where] = stream(seed, *where).bit_generator.state["state"]["state"]
    return found


@pytest.mark.parametrize("seed", [0, 7, 2**32 + 7, 2**96])
def test_no_two_streams_of_a_seed_coincide(seed: int) -> None:
    found = states(seed)
    assert len(found) > 200
    assert len(set(found.values())) == len(found)


def test_a_simulated_time_is_no_draw_of_an_all_reduces_quantizer() -> None:
    for seed in range(5):
        engine = ps.Simulated(compute_s=1.0, exponential=True)
        taken = engine.seconds(ps.Config(seed=seed), worker=0, clock=0, rows=1)
        assert taken != seeds.all_reduce(seed, 0).exponential()


def test_no_start_of_an_mlp_is_a_row_of_the_data() -> None:
    X = datasets.synthetic(features=20, classes=2, seed=0).X
    U = ps.MLP(X, np.zeros(len(X), int), hidden=20, classes=2).init(seeds.init(0))["U"]
    nearest = np.abs(np.corrcoef(U, X)[:20, 20:]).max()
    assert nearest < 0.95


def test_no_random_features_are_rows_of_the_data() -> None:
    X = datasets.synthetic(rows=50, features=20, validation=0.1, seed=3).X
    drawn = seeds.fourier(3).normal(size=(50, 20))
    assert np.abs(np.corrcoef(X, drawn)[: len(X), len(X) :]).max() < 0.95
