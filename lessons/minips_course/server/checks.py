"""The exercises of "Write a server that waits"."""

import copy
import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np

from minips.lab.course.exercises import Refused, asks, case, refuse_if
from minips.stage import Tensors
from minips_course.arrays import array_bytes, copied, drawn_like, drawn_names, reordered
from minips_course.own_server import check_rounds

MORE = 500
"""The bytes that a server may hold of messages that it refused."""


@asks(
    "server.1",
    "Keep each early push somewhere until its round is complete, and answer no worker before that.",
    "Create a dict in __init__ that maps each worker to its gradients. The round is complete once the dict has an "
    "entry for every worker.",
    "Keep the push. While pushes are missing, return []. Otherwise, take one step for each name with the mean, in the "
    "order of range(self.workers); then empty the dict and answer all workers.",
)
def rounds(server: Any, rng: np.random.Generator) -> str:
    """Make the server hold pushes until every worker has sent one, apply their mean once, and answer all of them."""
    _is_server(server)
    check_rounds(server, rng)
    return "Each round's mean is applied, to the same bits in every order of arrival, and all pushes are answered."


def _is_server(server: Any) -> None:
    refuse_if(not isinstance(server, type), f"Expected your class, such as Server, got {server!r}.")
    refuse_if(not callable(getattr(server, "handle", None)), f"{server.__name__} has no method handle.")
    wants = len(inspect.signature(server).parameters)
    refuse_if(wants != 3, f"Expected {server.__name__}(params, workers, lr); it takes {wants} arguments.")


@asks(
    "server.2",
    "Check the whole message first, and pass it on only if all of it is good.",
    "For a push, check that it contains a dict. Then compare tensors.keys() with self.params.keys(), and each "
    "gradient's shape with its parameter's shape. Beware: np.shape(None) is (), the shape of a scalar.",
    "Write a second method that returns a sentence about the first fault, or an empty string. Let handle call it: a "
    "fault becomes the only answer, and a good message goes to super().handle(worker, message).",
)
def careful(server: Any, rng: np.random.Generator) -> str:
    """Make handle answer a bad message with ("error", a sentence), change no parameter, and not count the message."""
    _is_server(server)
    tried = 0
    for workers in (1, 2, 3):
        names, d, lr = drawn_names(rng, 4), int(rng.integers(3, 8)), float(rng.uniform(0.1, 0.5))
        shapes = dict(zip(names, [(d,), (d, 2), (), (1, d)], strict=True))
        start = {name: np.asarray(rng.normal(size=shapes[name])) for name in rng.permutation(names).tolist()}
        served, twin = (server(copied(start), workers, lr) for _ in range(2))
        _bears(served, twin, [*_bad(start, rng)] * 2, workers, rng)
        tried += len([*_bad(start, rng)])
    check_rounds(server, rng)
    return f"Good messages work as before; {tried} bad messages were refused, and they changed nothing."


def _bad(params: Tensors, rng: np.random.Generator) -> Iterator[tuple[str, Any]]:
    """Yield bad messages for a server with these parameters, and what is bad."""
    good = drawn_like(params, rng)
    for unknown in ("shove", "poll", "pushed", "", "PUSH", "Pull", " push", "pus", None, 7, b"push", ("push",)):
        yield f"an unknown kind, ({unknown!r}, …)", (unknown, drawn_like(params, rng))
    contents: list[Any] = [None, 3.0, "w", [*good.values()], [*good.items()], tuple(good), {}]
    for content in contents:
        yield f"a push of a {type(content).__name__}, ('push', {str(content)[:20]}…)", ("push", content)
    yield "a push with an unknown tensor", ("push", {**good, "extra": np.ones(2)})
    for name, g in good.items():
        others = {other: x for other, x in good.items() if other != name}
        yield f"a push that lacks {name!r}", ("push", others)
        yield f"a push of 'c' in place of {name!r}", ("push", reordered({**others, "c": g}, rng))
        for shape in {(*g.shape, 1), (1, *g.shape), g.shape[::-1], (), (1,), (2,), (*g.shape[:-1], 9)} - {g.shape}:
            wrong = reordered({**others, name: np.ones(shape)}, rng)
            yield f"a push of {name!r} with shape {shape} in place of {g.shape}", ("push", wrong)
        for nothing in (None, "text"):
            without: dict[str, Any] = {**others, name: nothing}
            yield f"a push of {name!r} that is {nothing!r}", ("push", reordered(without, rng))


def _bears(served: Any, twin: Any, bad: list[tuple[str, Any]], workers: int, rng: np.random.Generator) -> None:
    """Refuse a server unless it goes on, after each bad message, like a twin that got the good messages alone."""
    yet = rng.permutation(workers).tolist()
    for n in rng.permutation(len(bad)).tolist():
        what, message = bad[n]
        _is_refused(served, yet[0], what, message)
        with case(f"{workers} workers, after {what},"):
            if rng.random() < 0.7:
                gradients = drawn_like(twin.params, rng)
                answers, wanted = (one.handle(yet[0], ("push", copied(gradients))) for one in (served, twin))
                alike = [(to, said) for to, (said, _) in answers] == [(to, said) for to, (said, _) in wanted]
                refuse_if(not alike, f"it answers a good push with {answers}; without bad messages, with {wanted}.")
                yet = yet[1:] or rng.permutation(workers).tolist()
            _are_alike(served, twin, yet[0])


def _are_alike(served: Any, twin: Any, worker: int) -> None:
    same = served.params.keys() == twin.params.keys()
    same = same and all(np.array_equal(served.params[name], p) for name, p in twin.params.items())
    refuse_if(not same, "good pushes lead to other parameters than without bad messages.")
    got = served.handle(worker, ("pull", {}))
    right = isinstance(got, list) and len(got) == 1 and got[0][0] == worker and got[0][1][0] == "params"
    refuse_if(not right, "the worker that pulled did not get the parameters.")
    same = all(np.array_equal(got[0][1][1].get(name, np.nan), p) for name, p in served.params.items())
    refuse_if(not same, "the answer to a pull differs from the server's parameters.")
    more = array_bytes(vars(served)) - array_bytes(vars(twin))
    refuse_if(more > MORE, f"it holds {more} bytes more than without bad messages. Keep nothing of them.")


def _is_refused(served: Any, worker: int, what: str, message: Any) -> None:
    before, sent = copied(served.params), copy.deepcopy(message)
    with case(f"For {what}"):
        try:
            answers = served.handle(worker, message)
        except Exception as error:
            raise Refused(f"it stopped with {type(error).__name__}: {error}. The server would die.") from None
        same = served.params.keys() == before.keys()
        changed = [name for name in before if not same or not np.array_equal(before[name], served.params[name])]
        refuse_if(changed, f"it changed {', '.join(changed)}.")
        said = f"{type(answers).__name__} {str(answers)[:40]!r}"
        right = isinstance(answers, list) and len(answers) == 1 and _is_error(answers[0], worker)
        refuse_if(not right, f"it answered {said}, expected [({worker}, ('error', 'a sentence'))].")
        refuse_if(repr(message) != repr(sent), "it changed the message.")


def _is_error(answer: Any, worker: int) -> bool:
    if not (isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], tuple) and len(answer[1]) == 2):
        return False
    to, (kind, words) = answer
    return bool(to == worker and kind == "error" and isinstance(words, str) and words.strip())
