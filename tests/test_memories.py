"""Error feedback: everything sent plus what is held is everything meant."""

import numpy as np
import pytest

import minips as ps


def send(memory, quantizer, gradients):
    """What arrives at the receiver step by step, and the sender's state after it."""
    ours, theirs, rng = {}, {}, np.random.default_rng(0)
    arrived = []
    for g in gradients:
        p = memory.compensate(g, ours)
        sent = quantizer.decode(quantizer.encode(p, rng))
        memory.update(p, sent, ours)
        arrived.append(memory.restore(sent, theirs))
    return arrived, ours


@pytest.mark.parametrize("quantizer", [ps.Sign(), ps.TopK(fraction=0.02), ps.Uniform(bits=2), ps.Float16()], ids=repr)
def test_sent_plus_held_is_meant_over_a_thousand_steps(quantizer):
    gradients = np.random.default_rng(1).standard_normal((1000, 50))
    arrived, state = send(ps.ErrorFeedback(), quantizer, gradients)
    meant = gradients.sum(axis=0)
    assert np.allclose(np.sum(arrived, axis=0) + state["error"], meant, rtol=0, atol=1e-10)


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


def test_karimireddys_counterexample_needs_it():
    """Two rows ±(1, −1) + ε(1, 1), least squares: signs of single gradients never move along (1, 1)."""
    rows = np.array([[1, -1], [-1, 1]]) + 0.5

    def descend(memory):
        w, state, rng = np.array([1.0, 1.0]), {}, np.random.default_rng(3)
        for _ in range(3000):
            a = rows[rng.integers(2)]
            p = memory.compensate(2 * (a @ w) * a, state)
            sent = ps.Sign().decode(ps.Sign().encode(p, None))
            memory.update(p, sent, state)
            w -= 0.01 * memory.restore(sent, {})
        return float(((rows @ w) ** 2).sum())

    at_start = float(((rows @ np.ones(2)) ** 2).sum())
    assert descend(ps.NoMemory()) > 0.9 * at_start
    assert descend(ps.ErrorFeedback()) < 1e-6 * at_start
