"""One tensor at a time is quantized, and nothing else changes."""

import pytest

import minips as ps

PROBLEM = ps.MLP(*ps.datasets.synthetic(rows=200, features=6, classes=3), hidden=8)
CONFIG = ps.Config(workers=2, steps=10, push=ps.Codec(ps.TopK(fraction=0.1)), delays=ps.Delays(0.001))


def test_there_is_a_run_for_each_tensor_and_two_to_compare_with():
    runs = ps.sensitivity(PROBLEM, CONFIG)
    assert list(runs) == ["none", "all", "U", "a", "W", "b"]
    for name in ("U", "a", "W", "b"):
        codec = runs[name].config.push
        assert {tensor: codec.quantizer_of(tensor).name for tensor in ("U", "a", "W", "b")} == {
            tensor: "topk" if tensor == name else "exact" for tensor in ("U", "a", "W", "b")
        }
    assert runs["all"].config.push.quantizer == ps.TopK(fraction=0.1)
    plain = ps.train(PROBLEM, ps.Config(workers=2, steps=10, transport="inproc"), engine="threads")
    assert runs["none"].validation_loss == plain.validation_loss
    losses = {name: run.validation_loss for name, run in runs.items()}
    assert len(set(losses.values())) == len(losses)


def test_a_name_with_a_bracket_is_no_pattern():
    class Odd(ps.LinearRegression):
        def init(self, rng):
            return {"w[0]" if name == "w" else name: x for name, x in super().init(rng).items()}

        def loss_and_gradient(self, params, rows=None):
            loss, gradients = super().loss_and_gradient({"w": params["w[0]"], "b": params["b"]}, rows)
            return loss, {"w[0]": gradients["w"], "b": gradients["b"]}

    runs = ps.sensitivity(Odd(*ps.datasets.synthetic(rows=50)), CONFIG)
    assert runs["w[0]"].config.push.quantizer_of("w[0]").name == "topk"


@pytest.mark.parametrize("name", ["all", "none"])
def test_a_tensor_with_the_name_of_a_run_to_compare_with_is_refused(name):
    class Odd(ps.LinearRegression):
        def init(self, rng):
            return {name: super().init(rng)["w"]}

    with pytest.raises(ValueError, match=f"A tensor is called '{name}', which is also the name of a run"):
        ps.sensitivity(Odd(*ps.datasets.synthetic(rows=50)), CONFIG)
