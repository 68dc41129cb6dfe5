"""Lesson 03: build a parameter server in forty lines."""

import copy
import dataclasses
import inspect
from typing import Any

import numpy as np

import minips as ps
from minips.lab.course.exercises import Refused, asks, case, distance, drawn_seed, is_own, refuse_if
from minips.lab.course.questions import Expected, Option, card, question, sentence, timed_question, timed_sentence
from minips.stage import Tensors

timed_question(
    "03.1",
    "Each worker takes 100 steps, and nobody waits. With eight workers in place of four: how stale is a gradient on "
    "average, compared with four?",
    Option(
        "about as stale",
        lambda four, eight: 0 <= eight <= 1.3 * four > 0,
        "Twice as many workers pushed, and yet no more pushes fell between a worker's pull and its push: the workers "
        "took their turns in larger blocks.",
    ),
    Expected(
        "about twice as stale",
        lambda four, eight: 1.3 * four < eight <= 3.5 * four and four > 0,
        "Only the pushes of other workers make a gradient stale. Each such push falls into at most one of a "
        "worker's stretches from a pull to its next push. So the mean over all gradients is n − 1 at most: 3 with four "
        "workers, 7 with eight; a single gradient can be staler. It is less, since some pushes fall between a push and "
        "the next pull.",
    ),
    Option(
        "more than 3.5 times as stale",
        lambda four, eight: eight > 3.5 * four > 0,
        "With four workers hardly any push fell between a pull and a push, with eight many did. That can happen where "
        "the machine has cores for four workers and not for eight.",
    ),
    otherwise="With four workers no gradient was stale at all, so there is nothing to compare with.",
)

question(
    "03.2",
    "The worker calls apply_gradients(g) on what .to_here() brought. Whose parameters change?",
    Option(
        "the server's parameters alone",
        lambda stopped, server, worker: not stopped and server > 0 and worker == 0,
        "What came is a reference in disguise: the call went to the server's object.",
    ),
    Expected(
        "the worker's parameters alone",
        lambda stopped, server, worker: not stopped and server == 0 and worker > 0,
        "What came is a copy. The call changes the copy, and the server never hears of it. No error says so.",
    ),
    Option(
        "the parameters of both",
        lambda stopped, server, worker: not stopped and server > 0 and worker > 0,
        "Server and worker hold the same array: what one changes, the other sees.",
    ),
    Option(
        "no parameters: the call ends with an error",
        lambda stopped, server, worker: stopped and server == 0 and worker == 0,
        "What came has no method apply_gradients, or it refuses to be called away from its owner.",
    ),
    otherwise="The call changed nothing and raised nothing, or it did both.",
)

timed_question(
    "03.3",
    "How long does B, with two servers, take for the same 30 steps, compared with A?",
    Option(
        "nearly as long as A",
        lambda share: 0.92 <= share < 2,
        "The bytes are not what takes the time here: computing, and waiting for the cores, is the same for both.",
    ),
    Expected(
        "clearly less, and more than half as long",
        lambda share: 0.53 < share < 0.92,
        "Each link carries half of the values, so their time is halved. The rest of a step is not: a message of half "
        "the size has the same latency and a header of its own, and computing takes as long as before.",
    ),
    Option(
        "half as long, or less",
        lambda share: 0 < share <= 0.53,
        "Each link carries half of the values, and nothing but these bytes takes time.",
    ),
    otherwise="B took at least twice as long as A: something else disturbed the runs.",
)

timed_sentence(
    "03.1",
    "{name}: a gradient is {mean:.2f} versions stale on average (five runs, from {low:.2f} to {high:.2f}); the stalest "
    "one was {most}.",
    expect="low > 0",
)

sentence(
    "03.2",
    "{name}: the loss after 40 steps is {mean:.3f} ± {half:.3f} (five seeds, 95 % interval).",
    expect="mean + half < 1",
)

sentence(
    "03.3",
    "As far as the links decide, B takes {links:.0%} of A's time. Without latency it takes {bare:.0%}, and half of the "
    "bytes that B's workers send is {half:.0%} of those of A's. So there headers and latency make what is over half. "
    "What the measured share has beyond that is neither.",
    expect="links > bare + 0.02 and abs(bare - half) < 0.02 and 0.5 < half",
)

timed_sentence(
    "03.4",
    "Without a bound (ASP) {broken} of {reads} reads lag by more than 3 clocks, and the worst by {most}.",
    expect="broken > 0 and most > 3",
)

sentence(
    "03.5",
    "Trained by hand, the model reads {mean:.1%} ± {half:.1%} of the held-out digits (five seeds, 95 % interval).",
    expect="mean - half > 0.9",
)

sentence(
    "03.6",
    "Another function asks for the local name: {local}. With a global statement: {declared}. To pickle a lambda: "
    "{unnamed}. To pickle a function that has a name: {named}; it becomes {nbytes} bytes, little more than its name.",
    expect="local == 'NameError' and declared == 'no error' and unnamed in ('PicklingError', 'AttributeError') and "
    "named == 'no error' and nbytes < 100",
)

sentence("03.7", "local_value(), called on the copy, ends with: {error}.", expect="error == 'AttributeError'")

sentence(
    "03.8",
    "Before the call the server's parameters were {before}, afterwards they are {after}; the worker got {answer}.",
    expect="after[0] == before[0] - 0.5 and answer == after",
)

timed_sentence(
    "03.9",
    "The worker that pulls once has the loss {ten:.2f} after 10 steps and {hundred:.2f} after 100. The one that pulls "
    "each time ends at {often:.2f}. The difference at 100 steps is {more:.1f} ± {half:.1f} (five seeds in pairs, 95 % "
    "interval), and at least {least:.1f}.",
    expect="least > 0 and hundred > ten",
)

sentence(
    "03.10",
    "The least that the workers sent in one of the three runs is {least:,} bytes, the most {most:,}: an optimizer "
    "changes no message.",
    expect="least == most",
)

sentence(
    "03.11",
    "After adding 7 to the fetched b, the server holds {after_copy}; after a push it holds {after_push}.",
    expect="after_copy == [0, 0] and after_push[0] < 0",
)

sentence(
    "03.12",
    "The parameters with one server and with two differ by {far:g}: the same to the last bit.",
    expect="far == 0",
)

timed_sentence(
    "03.13",
    "B takes {share:.1%} of A's time on this machine: the median of five pairs of runs, in threads; half of the pairs "
    "lie from {low:.1%} to {high:.1%}.",
    expect="0.5 < share < 0.92",
)

card(
    "03.14",
    "s = {s}: in {reads} reads, the least count was at most {most} behind the reader's clock.",
    expect="reads > 50 and most <= s",
)

sentence(
    "03.15",
    "Your optimizer trained with four worker processes: the model reads {accuracy:.0%} of the held-out digits. In the "
    "list of optimizers: {listed}.",
    expect="accuracy > 0.9 and listed",
)


sentence(
    "03.16",
    "In the other process the ending is {there}, in this one it is {here}.",
    expect="there == 'model/ours' and here is None",
)


@asks(
    "03.1",
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
    "03.2",
    "Look before you leap: check the whole message first, and change parameters only when all of it is good.",
    "For a push: is it a dict at all? Then compare tensors.keys() with params.keys(), then each gradient's shape with "
    "its parameter's.",
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
    backwards = dict(reversed(good.items()))
    kind = str(rng.choice(["shove", "poll", "pushed", "", "PUSH"]))
    bad: dict[str, tuple[Any, Any]] = {
        f"an unknown kind, ({kind!r}, …)": (kind, good),
        "the kind None": (None, good),
        "('push', None)": ("push", None),
        "a push of a list, ('push', […])": ("push", [good["w"], good["b"]]),
        "a push of a number": ("push", 3.0),
        "a push of nothing, ('push', {})": ("push", {}),
        "a push of a tensor that is not there": ("push", {**good, "extra": np.ones(2)}),
        "a push that lacks 'b'": ("push", {"w": good["w"]}),
        "a push of 'c' in place of 'b'": ("push", {"w": good["w"], "c": good["b"]}),
        f"a push of 'b' with shape ({d + 2},) in place of (2,)": ("push", {"w": good["w"], "b": np.ones(d + 2)}),
        "a push of 'b' with shape () in place of (2,)": ("push", {"w": good["w"], "b": np.ones(())}),
        "a push of 'b' with shape (1,) in place of (2,)": ("push", {"w": good["w"], "b": np.ones(1)}),
        f"a push of 'w' with shape (2,) in place of ({d}, 2)": ("push", {**backwards, "w": np.ones(2)}),
        f"a push of 'w' with shape (2, {d}) in place of ({d}, 2)": ("push", {**backwards, "w": np.ones((2, d))}),
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
    wanted = {name: params[name] - lr * good[name] for name in params}
    handle(params, ("push", backwards), lr)
    near = all(np.allclose(params[name], wanted[name]) for name in wanted)
    refuse_if(not near, "After all the nonsense a good push, its names in another order, is not p − lr·g any more.")
    return f"Good messages work as before; {len(bad)} bad ones were refused, and nothing was changed."
