"""The exercises of "Train in a minute"."""

import dataclasses
from typing import Any

import numpy as np

import minips as ps
from minips.lab.course.exercises import asks, case, drawn_seed, equals, refuse_if


@asks(
    "train.1",
    "Which stage decides how many bits a value takes? Look for it in the picture of a gradient's path.",
    "ps.names('quantizer') lists the candidates. A quarter of 32 bits is 8, and names and shapes need a part of it.",
    "Give Config a push codec with one of these quantizers. If the accuracy is too low: which stage remembers what was "
    "left out?",
)
def fewer_bytes(config: Any, rng: np.random.Generator) -> str:
    """Change push, without TopK: send at most a quarter of the bytes, at nearly the same accuracy."""
    refuse_if(not isinstance(config, ps.Config), f"Expected a ps.Config, got a {type(config).__name__}.")
    seed = drawn_seed(rng)
    before, after = _runs(ps.Config(steps=100), config, seed)
    ratio, lost = after.bytes_sent / before.bytes_sent, float(before.accuracy or 0) - float(after.accuracy or 0)
    fell = f"from {before.accuracy:.3f} to {after.accuracy:.3f}"
    with case(f"With seed {seed}"):
        refuse_if(ratio > 0.25, f"the workers sent {ratio:.2f} of the bytes; at most 0.25 is allowed.")
        refuse_if(lost > 0.03, f"the accuracy fell {fell}; a loss of at most 0.03 is allowed.")
    topk = any(isinstance(config.push.quantizer_of(name), ps.TopK) for name in ("W", "b"))
    refuse_if(topk, "Bytes and accuracy are right, but you have already seen the quantizer TopK. Find another.")
    return f"{ratio:.2f} of the bytes; accuracy {after.accuracy:.3f} instead of {before.accuracy:.3f} (seed {seed})."


def _runs(base: ps.Config, config: ps.Config, seed: int) -> tuple[ps.Run, ps.Run]:
    """Train on the digits with ``base`` and with ``config``, which may differ only in their push codec."""
    said = f"Leave everything but push as it was at the start, with steps={base.steps}"
    changed = dataclasses.replace(config, push=base.push) != base
    refuse_if(changed, f"{said}, so that the two runs can be compared.")
    problem = ps.SoftmaxRegression(*ps.datasets.digits())
    trials = (dataclasses.replace(one, seed=seed) for one in (base, config))
    before, after = (ps.train(problem, one, engine=ps.Threads()) for one in trials)
    return before, after


@asks(
    "train.3",
    "run.bytes_sent counts the bytes that all workers sent in the whole run. In how many pushes did they send them?",
    "run.updates counts the applied pushes. A run may have been stopped early, so steps × workers can be wrong.",
    "Divide two attributes of the run. The result may be a fraction of a byte: do not round it.",
)
def bytes_per_push(function: Any, rng: np.random.Generator) -> str:
    """Write bytes_per_push, a function of a run: the mean number of bytes that a worker sends for one push."""
    refuse_if(not callable(function), f"Expected a function of a run, got a {type(function).__name__}.")
    problem = ps.SoftmaxRegression(*ps.datasets.synthetic(rows=200, features=int(rng.integers(5, 40)), classes=3))
    for early in (False, True):
        config = ps.Config(workers=int(rng.choice([2, 4])), steps=int(rng.integers(3, 9)), transport="inproc")
        run = ps.train(problem, config, engine=ps.Threads())
        if early:
            pushes = run.updates // 3  # neither whole steps, nor whole bytes per push
            sent = run.bytes_sent // pushes * pushes + 1
            run = dataclasses.replace(run, updates=pushes, bytes_sent=sent, stopped=True)
        about = f"For {run.bytes_sent} bytes in {run.updates} pushes"
        with case(about + (" (a run that was stopped early)" if early else "")):
            equals(function(run), run.bytes_sent / run.updates)
    return "The result is right for a complete run and for a run that was stopped early."
