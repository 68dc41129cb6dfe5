"""The exercises of "Train in a minute"."""

import dataclasses
from typing import Any

import numpy as np

import minips as ps
from minips.lab.course.exercises import asks, case, drawn_seed, equals, refuse_if

BASE, SEEDS = ps.Config(steps=100), 8


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
    said = f"Leave everything but push as it was at the start, with steps={BASE.steps}"
    changed = dataclasses.replace(config, push=BASE.push) != BASE
    refuse_if(changed, f"{said}, so that the two runs can be compared.")
    chosen = [config.push.quantizer_of(name) for name in ("W", "b")]
    own = [quantizer for quantizer in chosen if not type(quantizer).__module__.startswith("minips.")]
    refuse_if(own, f"{own} is not one of minips' quantizers. Choose from ps.names('quantizer').")
    for seed in (drawn_seed(rng) for _ in range(SEEDS)):
        before, after = _run(BASE, seed), _run(config, seed)
        ratio, lost = after.bytes_sent / before.bytes_sent, float(before.accuracy or 0) - float(after.accuracy or 0)
        fell = f"from {before.accuracy:.3f} to {after.accuracy:.3f}"
        with case(f"With seed {seed}"):
            refuse_if(ratio > 0.25, f"the workers sent {ratio:.2f} of the bytes; at most 0.25 is allowed.")
            refuse_if(lost > 0.03, f"the accuracy fell {fell}; a loss of at most 0.03 is allowed.")
        seen = any(isinstance(quantizer, ps.TopK) for quantizer in chosen)
        refuse_if(seen, "Bytes and accuracy are right, but you have already seen the quantizer TopK. Find another.")
    return f"{ratio:.2f} of the bytes; accuracy {after.accuracy:.3f} instead of {before.accuracy:.3f} (seed {seed})."


def _run(config: ps.Config, seed: int) -> ps.Run:
    """Train on the digits."""
    problem = ps.SoftmaxRegression(*ps.datasets.digits())
    return ps.train(problem, dataclasses.replace(config, seed=seed), engine=ps.Simulated())


@asks(
    "train.3",
    "run.bytes_sent counts the bytes that all workers sent in the whole run. In how many pushes did they send them?",
    "run.updates counts the applied pushes. A run may have been stopped early, so steps × workers can be wrong.",
    "Divide two attributes of the run. The result may be a fraction of a byte: do not round it.",
)
def bytes_per_push(function: Any, rng: np.random.Generator) -> str:
    """Write bytes_per_push, a function of a run: the mean number of bytes that a worker sends for one push."""
    refuse_if(not callable(function), f"Expected a function of a run, got a {type(function).__name__}.")
    for _ in range(3):
        problem = ps.SoftmaxRegression(*ps.datasets.synthetic(rows=200, features=int(rng.integers(5, 40)), classes=3))
        config = ps.Config(workers=int(rng.integers(1, 6)), steps=int(rng.integers(4, 9)), transport="inproc")
        whole = ps.train(problem, config, engine=ps.Simulated())
        pushes = int(rng.integers(1, config.steps))  # fewer than steps, and not whole bytes per push
        sent = int(whole.bytes_sent / whole.updates) * pushes + int(rng.integers(1, pushes + 1))
        stopped = dataclasses.replace(whole, updates=pushes, bytes_sent=sent, stopped=True)
        left = dataclasses.replace(stopped, updates=3 * pushes, bytes_sent=3 * sent + 1, stopped=False)
        for run, what in ((whole, ""), (stopped, " (stopped early)"), (left, " (some workers left)")):
            with case(f"For {run.bytes_sent} bytes in {run.updates} pushes{what}"):
                equals(function(run), run.bytes_sent / run.updates)
    return "The result is right for complete runs and for runs that applied fewer pushes than planned."
