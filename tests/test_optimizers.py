"""Each optimizer against its paper, written out again for one number at a time."""

import math

import numpy as np
import pytest

import minips as ps

STEPS = 50


def sgd(p, gradients, lr, momentum, nesterov, decay):
    """Sutskever et al. 2013, with lr outside of the velocity; Nesterov's as one looks ahead from the new velocity."""
    v = 0.0
    for g in gradients:
        g = g + decay * p
        v = momentum * v + g
        p = p - lr * (g + momentum * v if nesterov else v)
    return p


def adagrad(p, gradients, lr, epsilon=1e-8):
    """Duchi et al. 2011, figure 1, diagonal."""
    total = 0.0
    for g in gradients:
        total += g**2
        p -= lr / (math.sqrt(total) + epsilon) * g
    return p


def adam(p, gradients, lr, beta1=0.9, beta2=0.999, epsilon=1e-8):
    """Kingma and Ba 2015, algorithm 1."""
    m = v = 0.0
    for t, g in enumerate(gradients, start=1):
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g**2
        p -= lr * (m / (1 - beta1**t)) / (math.sqrt(v / (1 - beta2**t)) + epsilon)
    return p


@pytest.mark.parametrize(
    ("optimizer", "paper"),
    [
        (ps.SGD(lr=0.1), lambda p, gs: sgd(p, gs, 0.1, 0, False, 0)),
        (ps.SGD(lr=0.1, momentum=0.9), lambda p, gs: sgd(p, gs, 0.1, 0.9, False, 0)),
        (ps.SGD(lr=0.1, momentum=0.9, nesterov=True), lambda p, gs: sgd(p, gs, 0.1, 0.9, True, 0)),
        (ps.SGD(lr=0.1, weight_decay=0.01), lambda p, gs: sgd(p, gs, 0.1, 0, False, 0.01)),
        (
            ps.SGD(lr=0.05, momentum=0.5, nesterov=True, weight_decay=0.1),
            lambda p, gs: sgd(p, gs, 0.05, 0.5, True, 0.1),
        ),
        (ps.Adagrad(lr=0.3), lambda p, gs: adagrad(p, gs, 0.3)),
        (ps.Adam(lr=0.01), lambda p, gs: adam(p, gs, 0.01)),
        (ps.Adam(lr=0.01, beta1=0.5, beta2=0.9, epsilon=1e-3), lambda p, gs: adam(p, gs, 0.01, 0.5, 0.9, 1e-3)),
    ],
    ids=lambda one: repr(one) if isinstance(one, ps.Stage) else None,
)
def test_the_paper_one_number_at_a_time(optimizer, paper):
    rng = np.random.default_rng(0)
    start, gradients = rng.standard_normal((3, 4)), rng.standard_normal((STEPS, 3, 4))
    params, state = {"w": start.copy()}, {}
    for g in gradients:
        optimizer.step(params, {"w": g.copy()}, state)
    for i in np.ndindex(start.shape):
        assert params["w"][i] == pytest.approx(paper(float(start[i]), [float(g[i]) for g in gradients]), rel=1e-12)


def test_nesterov_without_momentum_is_plain():
    a, b = {"w": np.ones(3)}, {"w": np.ones(3)}
    ps.SGD(nesterov=True).step(a, {"w": np.full(3, 2.0)}, {})
    ps.SGD().step(b, {"w": np.full(3, 2.0)}, {})
    assert a["w"].tolist() == b["w"].tolist() == [0.8] * 3


def test_adams_first_step_is_lr_whatever_the_gradients_size():
    for size in (1e-3, 1.0, 1e6):
        params = {"w": np.zeros(2)}
        ps.Adam(lr=0.01).step(params, {"w": np.array([size, -size])}, {})
        assert params["w"] == pytest.approx([-0.01, 0.01], rel=1e-4)


def test_adagrads_first_step_is_lr_and_then_it_shrinks_as_one_over_root_t():
    params, state, moved = {"w": np.zeros(1)}, {}, []
    for _ in range(16):
        before = params["w"].copy()
        ps.Adagrad(lr=1.0).step(params, {"w": np.ones(1)}, state)
        moved.append((before - params["w"]).item())
    assert moved == pytest.approx([1 / math.sqrt(t) for t in range(1, 17)], rel=1e-6)


@pytest.mark.parametrize("optimizer", [ps.SGD(momentum=0.9), ps.Adagrad(), ps.Adam()], ids=repr)
def test_each_name_has_a_memory_of_its_own(optimizer):
    rng = np.random.default_rng(1)
    together, apart, state, states = {}, {}, {}, {"a": {}, "b": {}}
    for params in (together, apart):
        params.update(a=np.ones(2), b=np.ones((2, 2)))
    for _ in range(5):
        g = {"a": rng.standard_normal(2), "b": rng.standard_normal((2, 2))}
        optimizer.step(together, {name: x.copy() for name, x in g.items()}, state)
        for name in g:
            optimizer.step({name: apart[name]}, {name: g[name].copy()}, states[name])
    assert all(np.array_equal(together[name], apart[name]) for name in together)


@pytest.mark.parametrize("optimizer", [ps.SGD(momentum=0.9, weight_decay=0.1), ps.Adagrad(), ps.Adam()], ids=repr)
def test_float32_stays_float32_throughout(optimizer):
    params, state = {"w": np.ones(3, "f4")}, {}
    optimizer.step(params, {"w": np.ones(3, "f4")}, state)
    kept = [x for value in state.values() if isinstance(value, dict) for x in value.values()]
    assert all(x.dtype == np.float32 for x in [params["w"], *kept])


def test_a_subclass_that_steps_otherwise_does_so_everywhere():
    class Halves(ps.SGD):
        def step(self, params, grads, state):
            for p in params.values():
                p *= 0.5

    new, old = {"w": np.zeros(2)}, {"w": np.ones(2)}
    Halves().step_into(new, old, {"w": np.ones(2)}, {})
    assert (new["w"].tolist(), old["w"].tolist()) == ([0.5, 0.5], [1, 1])


@pytest.mark.parametrize("optimizer", [ps.Adagrad(), ps.Adam()], ids=lambda optimizer: optimizer.name)
def test_half_floats_take_the_steps_of_single_ones(optimizer):
    ways = {}
    for dtype in ("float16", "float32"):
        params, state = {"w": np.array([1.0, -1.0, 0.5], dtype)}, {}
        for _ in range(20):
            optimizer.step(params, {"w": np.array([0.0, 1e-4, -2.0], dtype)}, state)
        ways[dtype] = params["w"]
    assert ways["float16"].dtype == np.float16
    np.testing.assert_allclose(ways["float16"], ways["float32"], rtol=0.02)
