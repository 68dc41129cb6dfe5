"""Lesson 02: build a parameter server in forty lines."""

import copy
import dataclasses
import inspect
from typing import Any

import numpy as np

import minips as ps
from minips.lab.course.exercises import Refused, asks, case, distance, drawn_seed, is_own, refuse_if
from minips.lab.course.questions import Option, question, sentence
from minips.stage import Tensors

question(
    "02.1",
    "Four workers take 100 steps each, and nobody waits: how stale is a gradient, on average?",
    Option("0: each is computed from the newest parameters", lambda TODO: False, "TODO"),
    Option("above 0, but at most 3", lambda TODO: False, "TODO"),
    Option(
        "above 3",
        lambda TODO: False,
        "While worker 0 takes its 100 steps, the other three make 300 pushes. Each of them falls between a "
        "pull and a push of worker 0 at most once: so 300 versions for 100 gradients, 3 for each, is the "
        "most. It is less where a push falls between worker 0's push and its next pull.",
    ),
    expected="above 3",
    otherwise="TODO",
    telling=[],
)

sentence(
    "02.1", "The mean staleness was {mean:.2f} versions; the largest was {most}.", expect="0 < mean <= 3", timed=True
)

sentence(
    "02.2",
    "{name}: the loss after 40 steps is {mean:.3f} ± {half:.3f} (five seeds, 95 % interval).",
    expect="mean + half < 1",
)

sentence(
    "02.3",
    "With two servers the run takes {links:.0%} of the time, as far as the links decide (simulated "
    "engine). Measured on this machine, where six processes also share its cores: {share:.0%}.",
    expect="0.5 < links < 0.7",
)

sentence("02.4", "Without a bound (ASP) the largest lead was {lead} clocks.", expect="lead > 3", timed=True)


@asks(
    "02.1",
    "The velocity v has to survive until the next step, and each tensor has its own: state is yours to keep it in.",
    "v = state.get(name), and zeros like p the first time: np.zeros_like(p).",
    "Three lines for each name: the new v from the old one and the gradient, v into state, and the step into p "
    "in place.",
)
def momentum(optimizer: Any, rng: np.random.Generator) -> str:
    """Give the optimizer momentum: v ← momentum·v + g, then p ← p − lr·v."""
    is_own(optimizer, ps.Optimizer, "Momentum()")
    fields = {field.name for field in dataclasses.fields(optimizer)}
    refuse_if(not {"lr", "momentum"} <= fields, f"Expected the fields lr and momentum; {optimizer!r} has others.")
    for dtype in ("float64", "float32"):
        mine = dataclasses.replace(optimizer, lr=float(rng.uniform(0.01, 0.5)), momentum=float(rng.uniform(0.3, 0.95)))
        for _ in range(2):  # the second time with a fresh state: nothing may be left from the first
            _follows_the_formula(mine, dtype, rng)
    problem = ps.LinearRegression(*ps.datasets.diabetes())
    mine = dataclasses.replace(optimizer, lr=0.05, momentum=0.8)
    config = ps.Config(workers=2, steps=15, optimizer=mine, seed=drawn_seed(rng))
    run = ps.train(problem, config, engine=ps.Processes())
    like = dataclasses.replace(config, optimizer=ps.SGD(lr=0.05, momentum=0.8))
    far = distance(run.params, ps.train(problem, like, engine=ps.Threads()).params)
    with case(f"With seed {config.seed}"):
        refuse_if(not far <= 1e-5, f"two spawned workers ended {far:.2g} away from SGD(lr=0.05, momentum=0.8).")
    return "The formula holds on random tensors, and two spawned workers trained with it."


def _follows_the_formula(mine: Any, dtype: str, rng: np.random.Generator) -> None:
    shapes: dict[str, tuple[int, ...]] = {"w": (int(rng.integers(2, 6)), 3), "u": (4,), "v": (4,), "b": ()}
    params: Tensors = {name: np.array(rng.normal(size=shape), dtype) for name, shape in shapes.items()}
    wanted: Tensors = {name: p.astype("float64") for name, p in params.items()}
    own = ps.SGD(lr=mine.lr, momentum=mine.momentum)
    objects, state, own_state = dict(params), dict[str, Any](), dict[str, Any]()
    for step in range(1, 5):
        grads: Tensors = {name: np.array(rng.normal(size=shape), dtype) for name, shape in shapes.items()}
        own.step(wanted, {name: g.astype("float64") for name, g in grads.items()}, own_state)
        mine.step(params, grads, state)
        for name, shape in shapes.items():
            tensor = f"tensor {name!r} {dtype}{list(shape)}"
            with case(f"At step {step}, {tensor}, lr={mine.lr:.3f}, momentum={mine.momentum:.3f}:"):
                other = params[name] is not objects[name]
                refuse_if(other, "params holds another array now. Change the arrays in place, with p -= …")
                far = float(np.abs(params[name] - wanted[name]).max())
                later = " The first step was right, so look at what is kept between steps." if step > 1 else ""
                near = far <= (1e-9 if dtype == "float64" else 1e-4)
                refuse_if(not near, f"off the formula by {far:.3g}.{later}")


@asks(
    "02.2",
    "Look before you leap: check the whole message first, and change parameters only when all of it is good.",
    "For a push, compare tensors.keys() with params.keys(), then each gradient's shape with its parameter's.",
    "Answer ('error', f'There is no {kind}') for any kind that is neither push nor pull.",
)
def careful_handle(handle: Any, rng: np.random.Generator) -> str:
    """Make handle() answer nonsense with ('error', a sentence) and leave every parameter as it was."""
    refuse_if(not callable(handle), f"Expected the function handle, got {handle!r}.")
    if len(inspect.signature(handle).parameters) != 3:
        raise Refused("Expected handle(params, message, lr), with these three arguments.")
    lr, d = 0.25, int(rng.integers(3, 8))
    params = {"w": rng.normal(size=(d, 2)), "b": rng.normal(size=2)}
    good = {name: rng.normal(size=p.shape) for name, p in params.items()}
    wanted = {name: params[name] - lr * good[name] for name in params}
    objects = dict(params)
    handle(params, ("push", good), lr)
    for name in wanted:
        refuse_if(not np.allclose(params[name], wanted[name]), f"After a good push {name!r} is not p − lr·g any more.")
        refuse_if(params[name] is not objects[name], f"The push put another array under {name!r}; change it in place.")
    got = handle(params, ("pull", None), lr)
    as_it_is = isinstance(got, dict) and all(np.array_equal(got.get(name, np.nan), p) for name, p in params.items())
    refuse_if(not as_it_is, "A pull no longer answers with all the parameters.")
    bad = {
        "an unknown kind, ('shove', …)": ("shove", good),
        "a push of a tensor that is not there": ("push", {**good, "extra": np.ones(2)}),
        "a push that lacks 'b'": ("push", {"w": good["w"]}),
        f"a push of 'b' with shape ({d + 2},) in place of (2,)": ("push", {"w": good["w"], "b": np.ones(d + 2)}),
        "a push of 'b' with shape () in place of (2,)": ("push", {"w": good["w"], "b": np.ones(())}),
    }
    for what, message in bad.items():
        before = copy.deepcopy(params)
        with case(f"For {what}"):
            try:
                answer = handle(params, message, lr)
            except Exception as error:
                raise Refused(f"it stopped with {type(error).__name__}: {error}. The server would die.") from None
            changed = [name for name in before if not np.array_equal(before[name], params[name])]
            refuse_if(changed or params.keys() != before.keys(), f"it changed {', '.join(changed) or 'names'}.")
            said = f"{type(answer).__name__} {str(answer)[:40]!r}"
            right = isinstance(answer, tuple) and len(answer) == 2 and answer[0] == "error" and str(answer[1]).strip()
            refuse_if(not right, f"it answered {said}, expected ('error', 'a sentence').")
    return "Good messages work as before; five kinds of nonsense were refused, and nothing was changed."
