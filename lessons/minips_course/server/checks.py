"""The exercises of "Write a server in forty lines"."""

import copy
import inspect
from typing import Any

import numpy as np

from minips.lab.course.exercises import Refused, asks, case, refuse_if
from minips_course.own_server import check_rounds


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
    for _ in range(4):  # with other numbers of workers
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
    "gradient's shape with its parameter's shape.",
    "Write a second method that returns a sentence about the first fault, or an empty string. Let handle call it: a "
    "fault becomes the only answer, and a good message goes to super().handle(worker, message).",
)
def careful(server: Any, rng: np.random.Generator) -> str:
    """Make handle answer a bad message with ("error", a sentence), change no parameter, and not count the message."""
    _is_server(server)
    d, lr = int(rng.integers(3, 8)), 0.25
    start = {"w": rng.normal(size=(d, 2)), "b": rng.normal(size=2)}
    good = {name: rng.normal(size=p.shape) for name, p in start.items()}
    backwards = dict(reversed(good.items()))
    kind = str(rng.choice(["shove", "poll", "pushed", "", "PUSH"]))
    bad: dict[str, tuple[Any, Any]] = {
        f"an unknown kind, ({kind!r}, …)": (kind, good),
        "the kind None": (None, good),
        "('push', None)": ("push", None),
        "a push of a list, ('push', […])": ("push", [good["w"], good["b"]]),
        "a push of a number": ("push", 3.0),
        "a push of nothing, ('push', {})": ("push", {}),
        "a push with an unknown tensor": ("push", {**good, "extra": np.ones(2)}),
        "a push that lacks 'b'": ("push", {"w": good["w"]}),
        "a push of 'c' in place of 'b'": ("push", {"w": good["w"], "c": good["b"]}),
        f"a push of 'b' with shape ({d + 2},) in place of (2,)": ("push", {"w": good["w"], "b": np.ones(d + 2)}),
        "a push of 'b' with shape () in place of (2,)": ("push", {"w": good["w"], "b": np.ones(())}),
        "a push of 'b' with shape (1,) in place of (2,)": ("push", {"w": good["w"], "b": np.ones(1)}),
        f"a push of 'w' with shape (2,) in place of ({d}, 2)": ("push", {**backwards, "w": np.ones(2)}),
        f"a push of 'w' with shape (2, {d}) in place of ({d}, 2)": ("push", {**backwards, "w": np.ones((2, d))}),
    }
    for workers in (1, 2):
        served, twin = (server(copy.deepcopy(start), workers, lr) for _ in range(2))
        _good_messages_work(served, twin, good, workers, lr, "With good messages:")
        for what, message in bad.items():
            _is_refused(served, what, message)
        _good_messages_work(served, twin, backwards, workers, lr, f"After all bad messages, {workers} workers:")
    return f"Good messages work as before; {len(bad)} bad messages were refused, and they changed nothing."


def _good_messages_work(served: Any, twin: Any, good: Any, workers: int, lr: float, where: str) -> None:
    """Refuse a server if a round of good pushes gives a wrong result, or not that of a twin that got no bad message."""
    before = copy.deepcopy(served.params)
    with case(where):
        for worker in reversed(range(workers)):
            answers, wanted = (one.handle(worker, ("push", copy.deepcopy(good))) for one in (served, twin))
            alike = [(to, said) for to, (said, _) in answers] == [(to, said) for to, (said, _) in wanted]
            refuse_if(not alike, f"it answers a push with {answers}; without bad messages, with {wanted}.")
        for name, p in before.items():
            near = np.allclose(served.params[name], p - lr * good[name])
            refuse_if(not near, f"after a push from each worker, {name!r} is not p − lr·g for the mean gradient g.")
        got = served.handle(0, ("pull", {}))
        right = isinstance(got, list) and len(got) == 1 and got[0][0] == 0 and got[0][1][0] == "params"
        refuse_if(not right, "the worker that pulled did not get the parameters.")
        same = all(np.array_equal(got[0][1][1].get(name, np.nan), p) for name, p in served.params.items())
        refuse_if(not same, "the answer to a pull differs from the server's parameters.")


def _is_refused(served: Any, what: str, message: Any) -> None:
    before = copy.deepcopy(served.params)
    with case(f"For {what}"):
        try:
            answers = served.handle(0, message)
        except Exception as error:
            raise Refused(f"it stopped with {type(error).__name__}: {error}. The server would die.") from None
        same = served.params.keys() == before.keys()
        changed = [name for name in before if not same or not np.array_equal(before[name], served.params[name])]
        refuse_if(changed, f"it changed {', '.join(changed)}.")
        said = f"{type(answers).__name__} {str(answers)[:40]!r}"
        right = isinstance(answers, list) and len(answers) == 1 and _is_error(answers[0])
        refuse_if(not right, f"it answered {said}, expected [(0, ('error', 'a sentence'))].")


def _is_error(answer: Any) -> bool:
    if not (isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], tuple) and len(answer[1]) == 2):
        return False
    to, (kind, words) = answer
    return bool(to == 0 and kind == "error" and isinstance(words, str) and words.strip())
