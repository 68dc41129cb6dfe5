"""Each memory against its recursion, and what it is good for: what is sent in the end is what was meant."""

import dataclasses
import functools
import itertools

import numpy as np
import pytest

import minips as ps
from minips.core.codec import Decoder, Encoder, unpack
from minips.core.message import Message
from minips.cost.probe import rounds
from minips.stages.quantizers import contractive
from minips.testing import check_memory

WAIT_S = 20.0


def send(memory, quantizer, gradients):
    """What arrives at the receiver step by step, and the sender's state after it."""
    ours, theirs, rng = {}, {}, np.random.default_rng(0)
    arrived = []
    for g in gradients:
        p = memory.compensate(g, ours)
        sent = quantizer.decode(quantizer.encode(p if memory.stateless else contractive(quantizer, p), rng))
        memory.update(p, sent, ours)
        arrived.append(memory.restore(sent, theirs))
    return arrived, ours


CONTRACTIONS = [
    ps.Sign(),
    ps.TopK(fraction=0.02),
    ps.RandomK(fraction=0.1, unbiased=False),
    ps.Threshold(value=5),
    ps.Uniform(bits=2),
    ps.QSGD(),
    ps.Float16(),
    ps.PowerSGD(rank=1),
    ps.Adaptive(target_error=0.5),
]


@pytest.mark.parametrize("quantizer", CONTRACTIONS, ids=lambda q: q.name)
@pytest.mark.parametrize("decay", [1.0, 0.9, 0.5])
def test_sent_plus_held_is_meant_over_a_thousand_steps(quantizer, decay):
    """With ``sent = g + λ·e' − e``, e' the error before: ``Σ sent + e = Σ g − (1 − λ) Σ e'``."""
    gradients = np.random.default_rng(1).standard_normal((1000, 5, 10))
    memory, state, rng = ps.ErrorFeedback(decay=decay), {}, np.random.default_rng(0)
    arrived, forgotten = np.zeros((5, 10)), np.zeros((5, 10))
    for g in gradients:
        forgotten += (1 - decay) * state.get("error", 0)
        p = memory.compensate(g, state)
        sent = quantizer.decode(quantizer.encode(p, rng))
        memory.update(p, sent, state)
        arrived += memory.restore(sent, {})
    assert np.allclose(arrived + state["error"], gradients.sum(axis=0) - forgotten, rtol=0, atol=1e-9)
    assert np.linalg.norm(state["error"]) < 100  # a contraction keeps it within bounds


def test_without_it_topk_never_sends_the_small_ones():
    g = np.array([1.0, 0.9] + [0.1] * 8)
    arrived, _ = send(ps.NoMemory(), ps.TopK(fraction=0.1), [g] * 100)
    assert np.count_nonzero(np.sum(arrived, axis=0)) == 1
    arrived, _ = send(ps.ErrorFeedback(), ps.TopK(fraction=0.1), [g] * 100)
    assert np.count_nonzero(np.sum(arrived, axis=0)) == 10


def test_an_exact_quantizer_leaves_nothing_to_hold():
    gradients = np.random.default_rng(2).standard_normal((5, 7))
    arrived, state = send(ps.ErrorFeedback(), ps.Exact(), gradients)
    assert np.array_equal(arrived, gradients)
    assert not state["error"].any()


@pytest.mark.parametrize("decay", [0.0, 0.5, 1.0])
def test_decay_is_the_share_of_the_old_error_that_is_kept(decay):
    memory, state = ps.ErrorFeedback(decay=decay), {}
    memory.update(np.array([3.0, 5.0]), np.array([1.0, 5.5]), state)
    assert memory.compensate(np.array([10.0, 10.0]), state).tolist() == [10 + 2 * decay, 10 - 0.5 * decay]


@pytest.mark.parametrize("lr", [0.01, 0.05, 0.2])
def test_karimireddys_counterexample_needs_it(lr):
    """Karimireddy et al. 2019, counterexample 3: ``f(x) = ⟨a₁, x⟩² + ⟨a₂, x⟩²`` with ``a = ±(1, −1) + ε(1, 1)``.

    A stochastic gradient is a multiple of one row, and as ε < 1 the row's sign is ±(1, −1): sign descent moves along
    (1, −1) alone. At ``x = u(1, 1) + v(1, −1)`` the two products are 2(εu ± v), so ``f = 8(ε²u² + v²) ≥ 8ε²u²``, and u
    stays what it was at the start: f never falls below f(1, 1) = 8ε², whatever the steps. Error feedback adds up what
    the signs leave out along (1, 1), which has the same sign in each error. Both rows are zero at the minimum, so the
    gradient's noise vanishes there and a constant step size converges.
    """
    epsilon = 0.5
    rows = np.array([[1, -1], [-1, 1]]) + epsilon

    def lowest(memory):
        w, state, rng, reached = np.array([1.0, 1.0]), {}, np.random.default_rng(3), np.inf
        for _ in range(2000):
            a = rows[rng.integers(2)]
            p = memory.compensate(2 * (a @ w) * a, state)
            sent = ps.Sign().decode(ps.Sign().encode(p, None))
            memory.update(p, sent, state)
            w -= lr * memory.restore(sent, {})
            reached = min(reached, float(((rows @ w) ** 2).sum()))
        return reached, float(((rows @ w) ** 2).sum())

    assert lowest(ps.NoMemory())[0] >= 8 * epsilon**2 * (1 - 1e-9)
    assert lowest(ps.ErrorFeedback())[1] < 1e-10


# Unbiased schemes are contractions once they are scaled by 1 / (1 + ω)


@functools.cache
def accuracy(quantizer, memory):
    """Of the held-out digits after 60 full-batch steps of 4 workers on 10,010 parameters."""
    problem = ps.SoftmaxRegression(*ps.datasets.fourier(ps.datasets.digits(), 1000))
    push = ps.Codec(quantizer=quantizer, memory=memory)
    config = ps.Config(push=push, steps=60, batch_size=None, optimizer=ps.SGD(lr=2.0))
    *_, params = rounds(problem, config)
    return problem.held_out().accuracy(params)


@pytest.mark.parametrize("memory", [ps.ErrorFeedback(), ps.Delta()], ids=repr)
@pytest.mark.parametrize(
    "name",
    [name if name == "qsgd" else pytest.param(name, marks=pytest.mark.soak) for name in ps.names("quantizer")],
)
def test_a_memory_costs_no_quantizer_its_accuracy_or_is_refused(name, memory, registry):
    quantizer = ps.build("quantizer", name)
    if name == "randomk":
        with pytest.raises(ValueError, match=r"use that, or no memory"):
            ps.Codec(quantizer=quantizer, memory=memory)
        quantizer = ps.RandomK(unbiased=False)
    assert accuracy(quantizer, memory) >= accuracy(quantizer, ps.NoMemory()) - 0.05


@pytest.mark.parametrize("memory", [ps.ErrorFeedback(), ps.Delta()], ids=repr)
@pytest.mark.parametrize("quantizer", [ps.QSGD(), ps.QSGD(levels=4), ps.Ternary(), ps.RandomK(fraction=0.1)], ids=repr)
def test_a_constant_gradient_of_any_size_is_remembered_within_bounds(quantizer, memory):
    """In expectation a squared error shrinks by ω / (1 + ω) a step; unscaled, it would grow by ω."""
    g = np.random.default_rng(2).standard_normal(10_010)
    omega = quantizer.relative_variance(g)
    arrived, state = send(memory, quantizer, [g] * int(8 * (1 + omega)))
    if "error" in state:
        assert np.linalg.norm(state["error"]) < 2 * (1 + omega) * np.linalg.norm(g)
    else:
        assert np.linalg.norm(arrived[-1] - g) < np.linalg.norm(arrived[0] - g) / 10


# TwoBit is no contraction: error feedback harms it


def test_two_bits_of_large_gradients_leave_an_error_that_grows_for_ever():
    for steps in (10, 100, 1000):
        _, state = send(ps.ErrorFeedback(), ps.TwoBit(threshold=0.5), [np.array([2.0, -2.0, 0.25])] * steps)
        assert state["error"].tolist() == [1.5 * steps, -1.5 * steps, 0.25 * (steps % 2)]


def test_two_bits_overshoot_for_ever_with_error_feedback_and_arrive_without():
    """While w comes from 20 to 0 the error gathers all that was too large, and then drives w on to −20 and back."""

    def distances(memory):
        w, state, path = np.array([20.0]), {}, []
        for _ in range(1000):
            p = memory.compensate(w, state)  # the gradient of |w|²/2
            sent = ps.TwoBit(threshold=0.5).decode(ps.TwoBit(threshold=0.5).encode(p, None))
            memory.update(p, sent, state)
            w = w - 2 * sent
            path.append(abs(float(w[0])))
        return path

    assert max(distances(ps.NoMemory())[20:]) < 0.5
    assert max(distances(ps.ErrorFeedback())[-100:]) == 20


# Delta: both halves are the same number


@pytest.mark.parametrize("quantizer", [ps.Uniform(bits=3), ps.QSGD(), ps.TopK(fraction=0.1), ps.Sign()], ids=repr)
@pytest.mark.parametrize("serializer", ["msgpack", "json"])
def test_both_halves_of_a_delta_are_equal_to_the_bit(quantizer, serializer):
    codec, trace = ps.Codec(quantizer=quantizer, memory=ps.Delta(), serializer=serializer), ps.Trace()
    x = np.random.default_rng(0).standard_normal((4, 5)).astype("f4")
    for connection in range(2):
        encoder, decoder = Encoder(codec, np.random.default_rng(connection), trace), Decoder(trace)
        for step in range(30):
            x = x + np.float32(0.01) * np.random.default_rng(step).standard_normal((4, 5)).astype("f4")
            frames = [bytes(frame) for frame in encoder.encode(Message({"kind": "reply"}, {"w": x}))]
            got = decoder.decode(unpack(frames, codec, trace)[0]).tensors["w"]
            assert got.tobytes() == encoder._states["w"]["known"].tobytes()
            assert got.tobytes() == decoder._states["w"]["known"].tobytes()


def test_a_difference_corrects_the_error_of_the_last_one():
    x = np.random.default_rng(1).standard_normal(100)
    arrived, _ = send(ps.Delta(), ps.Uniform(bits=4), [x] * 10)
    errors = [np.abs(y - x).max() for y in arrived]
    assert all(later <= earlier / 15 * 1.01 + 1e-15 for earlier, later in itertools.pairwise(errors))
    assert errors[-1] < 1e-9
    alone, _ = send(ps.NoMemory(), ps.Uniform(bits=4), [x] * 10)
    assert np.abs(alone[-1] - x).max() == np.abs(alone[0] - x).max() == errors[0]


@pytest.mark.parametrize("transport", ["inproc", "tcp"])
def test_a_client_that_connects_again_starts_the_difference_anew(transport):
    codec = ps.Codec(quantizer=ps.Uniform(bits=6), memory=ps.Delta())
    config = ps.Config(
        push=codec, pull=codec, transport=transport, consistency="asp", workers=1, optimizer=ps.SGD(lr=1.0)
    )
    start = np.random.default_rng(2).standard_normal((6, 7))
    g = np.random.default_rng(3).standard_normal((6, 7))
    with ps.Server({"w": start}, config).serve(token="t") as server:
        for _ in range(3):  # the same worker again and again; the server's half must not outlive its connection
            before = server.params["w"].copy()
            with ps.connect(server.address, config, token="t") as client:
                for _ in range(5):
                    client.push({"w": g}).result(WAIT_S)
                # The first push is off by half a step at most, each one after it by 1/63 of the one before.
                step = (g.max() - g.min()) / 63
                assert np.abs(server.params["w"] - (before - 5 * g)).max() <= step / 2 * 63 / 62 + 1e-9
                first = client.pull().result(WAIT_S)["w"]
                held = server.params["w"]
                assert np.abs(first - held).max() <= ps.Uniform(bits=6).error_bound(held)
                for _ in range(8):
                    got = client.pull().result(WAIT_S)["w"]
                assert np.abs(got - held).max() < 1e-12


def test_a_delta_of_zero_steps_is_the_value_itself():
    state = {}
    x = np.array([1.0, -0.0])
    assert ps.Delta().compensate(x, state) is x
    ps.Delta().update(x, x, state)
    assert ps.Delta().compensate(x, state).tolist() == [0, 0]
    got = ps.Delta().restore(np.ones(2), state)
    got[:] = 9
    assert state["known"].tolist() == [2, 1]


# Momentum correction: deep gradient compression


def deep_gradient_compression(gradients, momentum, k):
    """Lin et al. 2018, algorithm 1 with momentum correction and factor masking, one worker, no clipping."""
    u, v, arrived = np.zeros_like(gradients[0]), np.zeros_like(gradients[0]), []
    for g in gradients:
        u = momentum * u + g
        v = v + u
        mask = np.zeros(v.size, bool)
        mask[np.argsort(-np.abs(v))[:k]] = True
        arrived.append(np.where(mask, v, 0))
        v, u = np.where(mask, 0, v), np.where(mask, 0, u)
    return arrived, u, v


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("k", [1, 10, 50])
def test_momentum_correction_is_deep_gradient_compression(momentum, k):
    gradients = np.random.default_rng(4).standard_normal((200, 50))
    arrived, state = send(ps.MomentumCorrection(momentum=momentum), ps.TopK(fraction=k / 50), gradients)
    expected, u, v = deep_gradient_compression(gradients, momentum, k)
    assert np.allclose(arrived, expected, rtol=1e-12, atol=0)
    assert np.allclose(state["velocity"], u, rtol=1e-12, atol=0)
    assert np.allclose(state["waiting"], v, rtol=1e-12, atol=1e-15)


def test_where_all_is_sent_masking_leaves_no_momentum():
    """Exact sends every value, so u and v are zero after each step: plain descent, with no momentum at all."""
    gradients = list(np.random.default_rng(5).standard_normal((20, 7)))
    arrived, state = send(ps.MomentumCorrection(momentum=0.9), ps.Exact(), gradients)
    assert np.array_equal(arrived, gradients)
    assert not state["velocity"].any()
    assert not state["waiting"].any()


def test_without_momentum_it_is_error_feedback():
    gradients = list(np.random.default_rng(6).standard_normal((100, 30)))
    ours, _ = send(ps.MomentumCorrection(momentum=0.0), ps.TopK(fraction=0.1), gradients)
    theirs, _ = send(ps.ErrorFeedback(), ps.TopK(fraction=0.1), gradients)
    assert np.array_equal(ours, theirs)


def test_what_never_is_sent_gathers_its_momentum():
    """A value that waits n steps has Σ uᵢ, and with a constant gradient g that is the sum of g(1 − mⁱ)/(1 − m)."""
    g, m, n = np.array([100.0, 1.0]), 0.5, 6
    _, state = send(ps.MomentumCorrection(momentum=m), ps.TopK(fraction=0.5), [g] * n)
    assert state["waiting"][1] == pytest.approx(sum((1 - m**i) / (1 - m) for i in range(1, n + 1)))
    assert state["velocity"].tolist() == [0, (1 - m**n) / (1 - m)]


# The check of the contract


@pytest.mark.parametrize("memory", [ps.ErrorFeedback(decay=0.9), ps.MomentumCorrection(momentum=0.0)], ids=repr)
def test_other_fields_than_the_default_ones_meet_the_contract(memory):
    check_memory(memory)


def drifts(self, received, state):
    state["known"] = np.asarray(state.get("known", 0) + received * received.dtype.type(0.999))
    return state["known"].copy()


def lends_its_state(self, received, state):
    self.update(received, received, state)
    return state["known"]


@pytest.mark.parametrize("restore", [drifts, lends_its_state])
def test_a_receivers_half_that_parts_from_the_senders_is_told(registry, restore):
    Wrong = type("Wrong", (ps.Delta,), {"name": "wrong", "restore": restore})
    wrong = ps.register(dataclasses.dataclass(frozen=True)(Wrong))()
    with pytest.raises(AssertionError, match="the receiver restored an array that is not in the sender's state"):
        check_memory(wrong)


def test_a_memory_that_writes_into_what_it_has_remembered_is_told(registry):
    def update(self, p, sent, state):
        state.setdefault("error", np.zeros_like(p))[...] = p - sent

    wrong = ps.register(
        dataclasses.dataclass(frozen=True)(type("Wrong", (ps.ErrorFeedback,), {"name": "wrong", "update": update}))
    )()
    with pytest.raises(AssertionError, match="read-only"):
        check_memory(wrong)
