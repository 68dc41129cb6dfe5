"""The exercises of the lessons: what each one asks, how an answer is checked, and hints in steps.

A check tries an answer on inputs that are drawn anew each time, so that nothing passes by accident. It raises `Refused`
with what failed and on which input; `check` makes a `Verdict` of that, and never stops a notebook.
"""

import dataclasses
import html
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from minips import datasets
from minips.problems import LinearRegression, SoftmaxRegression
from minips.runtime.config import Config, Delays
from minips.runtime.engines import Processes, Threads
from minips.runtime.train import train
from minips.stage import Tensors, nearest
from minips.stages.optimizers import SGD, Optimizer


class Refused(Exception):  # noqa: N818, it is the outcome of a check and not an error
    """What failed, and on which input."""


class Exercise(NamedTuple):
    """What is asked, how an answer is checked, and the hints in the order in which they are given."""

    key: str
    task: str
    hints: tuple[str, ...]
    test: Callable[[Any], str]


EXERCISES: dict[str, Exercise] = {}
_hinted: dict[str, int] = {}


class Verdict:
    """What a check found. True where the exercise is done."""

    def __init__(self, key: str, passed: bool, words: str) -> None:
        self.key, self.passed, self.words = key, passed, words

    def __bool__(self) -> bool:
        return self.passed

    def __repr__(self) -> str:
        return f"✓ {self.key} is done. {self.words}" if self.passed else f"✗ {self.key}: not yet. {self.words}"

    def _repr_html_(self) -> str:
        first, *rest = map(html.escape, repr(self).split("\n"))
        style = "max-width:70em;line-height:1.4;overflow-wrap:anywhere"
        return f"<div role='status' style='{style}'><b>{first}</b><br>{'<br>'.join(rest)}</div>"


def check(exercise: str, thing: Any) -> Verdict:
    """Try ``thing`` as an answer to an exercise: what failed and on which input, and a hint, or that it is done."""
    asked = _exercise(exercise)
    try:
        return Verdict(asked.key, True, asked.test(thing))
    except Refused as refusal:
        words = str(refusal)
    except Exception as error:
        words = f"It stopped with {type(error).__name__}: {error}"
    return Verdict(asked.key, False, f'{words}\nHint: {asked.hints[0]} More: lab.hint("{asked.key}")')


def hint(exercise: str) -> None:
    """Print the next hint of an exercise; after the last one, the first again."""
    asked = _exercise(exercise)
    turn = _hinted.get(exercise, 0) % len(asked.hints)
    _hinted[exercise] = turn + 1
    print(f"Hint {turn + 1} of {len(asked.hints)} for {asked.key}: {asked.hints[turn]}")


def _exercise(key: str) -> Exercise:
    if key not in EXERCISES:
        raise ValueError(f"There is no exercise {key!r}. {nearest(str(key), EXERCISES)}")
    return EXERCISES[key]


def _asks(key: str, task: str, *hints: str) -> Callable[[Callable[[Any], str]], Callable[[Any], str]]:
    def add(test: Callable[[Any], str]) -> Callable[[Any], str]:
        EXERCISES[key] = Exercise(key, task, hints, test)
        return test

    return add


def _refuse_if(failed: Any, words: str) -> None:
    if failed:
        raise Refused(words)


def _seed() -> int:
    return int(np.random.default_rng().integers(1, 2**31))


# Lesson 00: train something in a minute


@_asks(
    "00.1",
    "Change the push codec so that the workers send at most a quarter of the bytes, at nearly the same accuracy.",
    "Which stage decides how many bits a value takes? Look for it in the picture of the data's way.",
    "ps.names('quantizer') lists the candidates. Sign() sends one bit for each value, TopK(0.05) one value in twenty.",
    "ps.Config(steps=100, push=ps.Codec(quantizer=ps.Sign())), and then look at what memory=ps.ErrorFeedback() adds.",
)
def fewer_bytes(config: Any) -> str:
    """A config of 100 steps that differs in ``push`` alone, at most 1/4 of the bytes, accuracy within 0.03."""
    _refuse_if(not isinstance(config, Config), f"Expected a ps.Config, got a {type(config).__name__}.")
    base = Config(steps=100)
    _refuse_if(
        dataclasses.replace(config, push=base.push) != base,
        "Leave everything but push as it was in Config(steps=100), so that the two runs can be compared.",
    )
    problem, seed = SoftmaxRegression(*datasets.digits()), _seed()
    before, after = (train(problem, dataclasses.replace(one, seed=seed), engine=Threads()) for one in (base, config))
    ratio, lost = after.bytes_sent / before.bytes_sent, float(before.accuracy or 0) - float(after.accuracy or 0)
    _refuse_if(ratio > 0.25, f"With seed {seed} the workers sent {ratio:.2f} of the bytes; at most 0.25 is asked for.")
    _refuse_if(
        lost > 0.03,
        f"With seed {seed} the accuracy fell from {before.accuracy:.3f} to {after.accuracy:.3f}; "
        "a loss of at most 0.03 is asked for.",
    )
    return f"{ratio:.2f} of the bytes; accuracy {after.accuracy:.3f} in place of {before.accuracy:.3f} (seed {seed})."


@_asks(
    "00.2",
    "One worker is slow. Change one stage so that the same number of updates is applied in less than 0.6 of the time.",
    "While the slow worker computes, what do the others do? Which stage says so?",
    "ps.names('consistency') lists three. Try each, and look at lab.timeline(run).",
    "SSP lets the fast ones run ahead, but only so far, and this worker is slow for good. What if nobody waits?",
)
def past_the_straggler(config: Any) -> str:
    """A config that differs in ``consistency`` alone; less than 0.6 of the time behind a straggler drawn anew."""
    _refuse_if(not isinstance(config, Config), f"Expected a ps.Config, got a {type(config).__name__}.")
    rng = np.random.default_rng()
    slow, factor, seed = int(rng.integers(config.workers)), float(rng.uniform(4, 6)), _seed()
    base = Config(steps=config.steps, delays=config.delays)
    _refuse_if(
        dataclasses.replace(config, consistency=base.consistency) != base,
        "Leave everything but consistency as it was, so that the two runs can be compared.",
    )
    trial = {"steps": 12, "seed": seed, "delays": Delays(seconds=0.02, slow={slow: factor})}
    problem = SoftmaxRegression(*datasets.digits())
    before, after = (train(problem, dataclasses.replace(one, **trial), engine=Threads()) for one in (base, config))
    ratio = after.seconds / before.seconds
    where = f"With worker {slow} {factor:.1f} times slower"
    _refuse_if(after.updates < before.updates, f"{where}, {after.updates} updates were applied, not {before.updates}.")
    _refuse_if(ratio >= 0.6, f"{where}, the run took {ratio:.2f} of the time; less than 0.60 is asked for.")
    return f"{where}, the run took {ratio:.2f} of the time. Lesson 07 asks what that costs."


@_asks(
    "00.3",
    "Write bytes_per_push(run): the mean number of bytes that a worker sends for one push.",
    "run.bytes_sent is what all the workers sent in the whole run. How many pushes was that?",
    "run.updates counts the pushes that were applied. A run may have been stopped early: steps × workers will not do.",
)
def bytes_per_push(function: Any) -> str:
    """A function of a run, tried on a short run of random size and on one that was stopped early."""
    _refuse_if(not callable(function), f"Expected a function of a run, got a {type(function).__name__}.")
    rng = np.random.default_rng()
    problem = SoftmaxRegression(*datasets.synthetic(rows=200, features=int(rng.integers(5, 40)), classes=3))
    for early in (False, True):
        config = Config(workers=int(rng.integers(1, 4)), steps=int(rng.integers(3, 9)), transport="inproc")  # type: ignore[arg-type]
        run = train(problem, config, engine=Threads())
        if early:
            run = dataclasses.replace(run, updates=run.updates // 2 or 1, stopped=True)
        got, wanted = function(run), run.bytes_sent / run.updates
        about = f"{run.bytes_sent} bytes in {run.updates} pushes" + (" (a run that was stopped early)" if early else "")
        _refuse_if(
            not isinstance(got, int | float) or not np.isclose(got, wanted),
            f"For {about} it returned {got!r}, expected {wanted:.1f}.",
        )
    return "It is right for a whole run and for one that was stopped early."


# Lesson 02: build a parameter server in forty lines


@_asks(
    "02.1",
    "Give the optimizer momentum: v ← momentum·v + g, then p ← p − lr·v.",
    "The velocity v has to survive until the next step, and each tensor has its own: state is yours to keep it in.",
    "v = state.get(name), and zeros like p the first time: np.zeros_like(p).",
    "v = self.momentum * state.get(name, np.zeros_like(p)) + grads[name]; state[name] = v; p -= self.lr * v",
)
def momentum(optimizer: Any) -> str:
    """Against the formula on random tensors, rates and steps; then in spawned workers."""
    _refuse_if(
        not isinstance(optimizer, Optimizer),
        f"Expected an instance of your optimizer, such as Momentum(), got {optimizer!r}.",
    )
    _refuse_if(isinstance(optimizer, SGD), "That is minips' own SGD, which has momentum already. Write yours.")
    fields = {field.name for field in dataclasses.fields(optimizer)}
    _refuse_if(not {"lr", "momentum"} <= fields, f"Expected the fields lr and momentum; {optimizer!r} has others.")
    rng = np.random.default_rng()
    for dtype in ("float64", "float32"):
        mine = dataclasses.replace(optimizer, lr=float(rng.uniform(0.01, 0.5)), momentum=float(rng.uniform(0.3, 0.95)))
        for _ in range(2):  # the second time with a fresh state: nothing may be left from the first
            _follows_the_formula(mine, dtype, rng)
    problem = LinearRegression(*datasets.diabetes())
    mine = dataclasses.replace(optimizer, lr=0.05, momentum=0.8)
    config = Config(workers=2, steps=15, optimizer=mine, seed=_seed())
    run = train(problem, config, engine=Processes())
    wanted = train(problem, dataclasses.replace(config, optimizer=SGD(lr=0.05, momentum=0.8)), engine=Threads())
    far = max(float(np.abs(run.params[name] - wanted.params[name]).max()) for name in wanted.params)
    _refuse_if(
        far > 1e-5, f"Two spawned workers ended {far:.2g} away from SGD(lr=0.05, momentum=0.8), seed {config.seed}."
    )
    return "The formula holds on random tensors, and two spawned workers trained with it."


def _follows_the_formula(mine: Any, dtype: str, rng: np.random.Generator) -> None:
    shapes: dict[str, tuple[int, ...]] = {"w": (int(rng.integers(2, 6)), 3), "u": (4,), "v": (4,), "b": ()}
    params: Tensors = {name: np.array(rng.normal(size=shape), dtype) for name, shape in shapes.items()}
    objects, state = dict(params), {}  # type: Tensors, dict[str, Any]
    wanted = {name: p.astype("float64") for name, p in params.items()}
    velocity = {name: np.zeros(shape) for name, shape in shapes.items()}
    for step in range(1, 5):
        grads: Tensors = {name: np.array(rng.normal(size=shape), dtype) for name, shape in shapes.items()}
        for name in shapes:
            velocity[name] = mine.momentum * velocity[name] + grads[name]
            wanted[name] = wanted[name] - mine.lr * velocity[name]
        mine.step(params, grads, state)
        for name, p in params.items():
            fields = f"lr={mine.lr:.3f}, momentum={mine.momentum:.3f}"
            what = f"step {step}, tensor {name!r} {dtype}{list(shapes[name])}, {fields}"
            _refuse_if(
                p is not objects[name],
                f"At {what}: params holds another array now. Change the arrays in place, with p -= …",
            )
            far = float(np.abs(p - wanted[name]).max())
            _refuse_if(
                not far <= (1e-9 if dtype == "float64" else 1e-4),
                f"At {what}: off the formula by {far:.3g}."
                + (" The first step was right, so look at what is kept between steps." if step > 1 else ""),
            )


@_asks(
    "02.2",
    "Make handle() answer nonsense with ('error', a sentence) and leave every parameter as it was.",
    "Look before you leap: check the whole message first, and change parameters only when all of it is good.",
    "For a push, compare tensors.keys() with params.keys(), then each gradient's shape with its parameter's.",
    "Answer ('error', f'There is no {kind}') for any kind that is neither push nor pull.",
)
def careful_handle(handle: Any) -> str:
    """A handler on random tensors: a good push and pull, an unknown kind, an unknown name, a lack, a wrong shape."""
    _refuse_if(not callable(handle), f"Expected the function handle, got {handle!r}.")
    if len(inspect.signature(handle).parameters) != 3:
        raise Refused("Expected handle(params, message, lr), with these three arguments.")
    rng, lr = np.random.default_rng(), 0.25
    d = int(rng.integers(3, 8))
    params = {"w": rng.normal(size=(d, 2)), "b": rng.normal(size=2)}
    good = {name: rng.normal(size=p.shape) for name, p in params.items()}
    wanted = {name: params[name] - lr * good[name] for name in params}
    objects = dict(params)
    handle(params, ("push", good), lr)
    for name in wanted:
        _refuse_if(not np.allclose(params[name], wanted[name]), f"After a good push {name!r} is not p − lr·g any more.")
        _refuse_if(params[name] is not objects[name], f"The push put another array under {name!r}; change it in place.")
    pulled = handle(params, ("pull", None), lr)
    _refuse_if(
        not isinstance(pulled, dict)
        or any(not np.array_equal(pulled.get(name, np.nan), p) for name, p in params.items()),
        "A pull no longer answers with all the parameters.",
    )
    bad = {
        "an unknown kind, ('shove', …)": ("shove", good),
        "a push of a tensor that is not there": ("push", {**good, "extra": np.ones(2)}),
        "a push that lacks 'b'": ("push", {"w": good["w"]}),
        f"a push of 'b' with shape ({d + 2},) in place of (2,)": ("push", {"w": good["w"], "b": np.ones(d + 2)}),
        "a push of 'b' with shape () in place of (2,)": ("push", {"w": good["w"], "b": np.ones(())}),
    }
    for what, message in bad.items():
        before = {name: p.copy() for name, p in params.items()}
        try:
            answer = handle(params, message, lr)
        except Exception as error:
            raise Refused(
                f"For {what} it stopped with {type(error).__name__}: {error}. The server would die."
            ) from None
        changed = [name for name in before if not np.array_equal(before[name], params[name])]
        _refuse_if(changed or params.keys() != before.keys(), f"For {what} it changed {', '.join(changed) or 'names'}.")
        _refuse_if(
            not (isinstance(answer, tuple) and len(answer) == 2 and answer[0] == "error" and str(answer[1]).strip()),
            f"For {what} it answered {type(answer).__name__} {str(answer)[:40]!r}, expected ('error', 'a sentence').",
        )
    return "Good messages work as before; five kinds of nonsense were refused, and nothing was changed."
