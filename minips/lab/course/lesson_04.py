"""Lesson 04: mend a lecture's server."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import minips as ps
from minips.lab.course.exercises import are_two, asks, case, number, refuse_if
from minips.lab.course.questions import (
    Expected,
    Item,
    Option,
    prompt,
    question,
    quiz,
    sentence,
    timed_question,
    timed_sentence,
)
from minips.stage import Array

question(
    "04.1",
    "The worker calls apply_gradients on what .to_here() brought. Whose parameters change?",
    Option(
        "the server's parameters alone",
        lambda stopped, server, worker: not stopped and server > 0 and worker == 0,
        "What came is a reference in disguise: the call went to the server's object.",
    ),
    Expected(
        "the worker's parameters alone",
        lambda stopped, server, worker: not stopped and server == 0 and worker > 0,
        "What came is a copy. The call changes the copy, and the server never hears of it. No error says so. (On a "
        "copy the mark async_execution has no effect: it is for calls that arrive.)",
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
    "04.2",
    "A call with 2 values, there and back: how long does torch's take, compared with minips' push_pull?",
    Option(
        "at most two thirds as long",
        lambda ratio: 0 < ratio <= 2 / 3,
        "torch's agent is written in C++, and minips in Python. How much of the time that is, this run does not say.",
    ),
    Option(
        "about as long, within a factor of 1.5",
        lambda ratio: 2 / 3 < ratio < 1.5,
        "Both send a small message and wait for the answer, and that may be most of the time on this machine.",
    ),
    Expected(
        "more than 1.5 times as long",
        lambda ratio: ratio >= 1.5,
        "Both send a small message and wait for the answer, so what differs is the code around it. torch's call takes "
        "any method of any object: it pickles the call and its result, and hands it to threads on both sides. A "
        "push_pull knows what it carries. How much each part takes, this run does not say.",
    ),
    otherwise="The times cannot be compared: one of them is zero, or there is none.",
)

sentence(
    "04.1",
    "worker1 ends with {worker}. And ps: {server}.",
    expect="'pickle' in worker and 'lambda' in worker and server",
)

sentence("04.2", "worker1 ends with {worker}.", expect="'NameError' in worker and 'global_ps_rref' in worker")

sentence("04.3", "worker1 ends with {worker}.", expect="'AttributeError' in worker and 'local_value' in worker")

sentence(
    "04.4",
    "The list of the owner is {numbers} now. The answers to append and to index were {answers}.",
    expect="numbers == [1, 2, 3] and answers == [None, 2]",
)

sentence("04.5", "worker1 ends with {worker}.", expect="'async' in worker and 'Future' in worker")

sentence(
    "04.6",
    "Both processes come to their end, and the server's parameters are {params}.",
    expect="not server and not worker and params == [-0.5, -0.5]",
)

sentence(
    "04.7",
    "After adding 7 to the fetched copy, the server holds {untouched}; after a push of ones it holds {pushed}.",
    expect="untouched == [0, 0] and pushed == [-0.5, -0.5]",
)

timed_sentence(
    "04.8",
    "The pushes that are sent together take {short:.0%} of the time of those one by one where a message is on its way "
    "for 1 millisecond, {middle:.0%} where for 5, and {long:.0%} where for 20.",
)

prompt(
    "04.1",
    "In two sentences: how do the two compare as messages grow, and how sure are you? Use the range of the five turns.",
    "torch's call took longer than minips' at each size whose whole range lies above 1. Whether the ratio changes with "
    "the size, these five turns say only where the ranges do not overlap.",
)

quiz(
    "04",
    Item(
        "What does pickle send of a function that a module defines?",
        {
            "Its module and its name.": "The other process imports the module and looks the name up. So it must have "
            "the same module, and the name must be there.",
            "Its source.": "No source and no byte code travels. That is why another process needs the same module.",
            "Its result.": "Nothing is called when a function is pickled.",
        },
    ),
    Item(
        "A function that uses a global of its module is called in another process. Which global does it see?",
        {
            "That of the process in which it runs.": "Only the name travels, so the function finds what its module "
            "holds in the process where it runs.",
            "That of the process that made the call.": "Globals do not travel with a function: pickle sends its "
            "module and its name.",
            "Both processes share it.": "Two processes share no variables. Each has its own copy of the module.",
        },
    ),
    Item(
        "You want the server's parameters to change. Which call does that?",
        {
            "reference.rpc_sync().apply_gradients(g)": "The call travels to the object at its owner.",
            "reference.to_here().apply_gradients(g)": "This changes a copy at the caller, which is then forgotten.",
            "reference.local_value().apply_gradients(g), at the worker": "local_value() is for the owner alone; at "
            "the worker it raises an error.",
        },
    ),
    Item(
        "What is to_here() good for?",
        {
            "To read a value once.": "It brings a copy of what the object is at that moment. A later change at the "
            "owner does not reach the copy.",
            "To move the object to another owner.": "The object stays with its owner; a copy travels.",
            "To save bytes.": "It sends the whole object, with everything that it holds. A method that returns what "
            "is needed sends less.",
        },
    ),
    Item(
        "What does rpc_async() change, compared with rpc_sync()?",
        {
            "The caller goes on, and gets the result from a future.": "The call is the same. Only the waiting is moved "
            "to where the result is needed.",
            "The method runs at the caller, and no call travels.": "The method runs at the owner in both cases.",
            "The owner runs the method, and sends no result.": "It is sent, and the future's wait() returns it.",
        },
    ),
)


@asks(
    "04.1",
    "A copy is good for reading. What is to change has to be reached through the reference.",
    "Push with reference.rpc_sync().apply(…). To read the parameters alone, call a method that returns them.",
    "Add a method to Model that returns self.params. In each step make two calls through reference.rpc_sync(): one to "
    "that method, and one to apply, with the gradient for the parameters that came.",
)
def lost_steps(pair: Any, rng: np.random.Generator) -> str:
    """Make each step reach the server's object, from the newest parameters, and let nothing large travel."""
    are_two(pair, "Model", "work")
    model, work = pair
    for steps in (1, 2, int(rng.integers(20, 40))):
        with case(f"With {steps} steps:"):
            _train(model, work, steps, rng)
    return "Each gradient came to the server, from its newest parameters, and nothing larger than these travelled."


def _train(model: Callable[[int], Any], work: Callable[..., Any], steps: int, rng: np.random.Generator) -> None:
    from minips.lab.course.programs_04 import Reference

    size = int(rng.integers(50, 90))
    owned = model(size)
    reference, others, wanted = Reference(owned), Reference(owned), np.zeros(size)
    pushed = list[Array]()

    def push(gradients: Array) -> Array:
        pushed.append(gradients.copy())
        wanted[:] -= 0.5 * gradients
        return gradients

    def gradient(params: Any) -> Array:
        newest = isinstance(params, np.ndarray) and np.shape(params) == (size,) and np.allclose(params, wanted)
        turn = f"In step {len(pushed) // 2}"
        refuse_if(not newest, f"{turn} gradient was not called with the server's newest parameters.")
        others.rpc_sync().apply(push(rng.normal(size=size)))  # another worker is faster
        return push(rng.normal(size=size))

    work(reference, gradient, steps)
    count = len(pushed) // 2
    refuse_if(count != steps, f"gradient was called {count} times, expected {steps}.")
    near = np.shape(owned.params) == (size,) and np.allclose(owned.params, wanted)
    refuse_if(not near, "the server's parameters are not what all gradients together make of them.")
    kept = len(owned.history) == len(pushed) and all(map(np.array_equal, owned.history, pushed))
    refuse_if(not kept, f"the server's history has {len(owned.history)} gradients, and not all {len(pushed)} in order.")
    limit = wanted.nbytes
    refuse_if(
        reference.largest > limit,
        f"something of {reference.largest} bytes travelled; the parameters have {limit}. Does the history travel?",
    )


@asks(
    "04.2",
    "push returns a future at once. What makes the loop slow is result(), which waits for the answer.",
    "Keep the futures of all pushes in a list, and go through that list afterwards.",
    "The second part has two loops: one that only sends, and one that only calls result(10) on each future. The clock "
    "stops after the second one.",
)
def together(measure: Any, rng: np.random.Generator) -> str:
    """Return the seconds of pushes that are waited for one by one, and of as many that are first all sent."""
    refuse_if(not callable(measure), f"Expected the function measure, got {measure!r}.")
    shares = []
    for _ in range(2):
        calls, latency = int(rng.integers(8, 12)), float(rng.uniform(0.02, 0.03))
        config = ps.Config(workers=1, optimizer=ps.SGD(lr=0.5), link=ps.Link(bandwidth_bps=1e9, latency_s=latency))
        gradients = {"w": rng.integers(1, 9, 3).astype(float)}
        with (
            ps.Server({"w": np.zeros(3)}, config).serve() as server,
            ps.connect(server.address, config, token=server.token) as client,
            case(f"With {calls} calls on a link of {1000 * latency:.0f} milliseconds:"),
        ):
            began = time.perf_counter()
            found = measure(watched := _NotedClient(client), gradients, calls)
            took = time.perf_counter() - began
            arrived = int(np.round(-server.params["w"][0] / 0.5 / gradients["w"][0]))
            refuse_if(arrived != 2 * calls, f"{arrived} pushes were applied at its end, expected {2 * calls}.")
            waited = len(watched.waited)
            refuse_if(waited != 2 * calls, f"{waited} of {2 * calls} answers were waited for.")
            refuse_if(not (isinstance(found, tuple) and len(found) == 2), f"it returned {found!r}, not two numbers.")
            first, second = map(number, found)
            least = 1.8 * latency
            refuse_if(first < calls * least, "the first part is too short for pushes that each wait for their answer.")
            refuse_if(second < least, "the second part is too short for a message there and back.")
            refuse_if(not 0.8 * took < first + second <= took, "the two parts do not add up to the time that it took.")
            refuse_if(second > first / 2, f"the second part takes {second / first:.0%} of the first. Does it wait?")
            shares.append(second / first)
    return f"Sent together, the pushes take {np.mean(shares):.0%} of the time of those that wait one by one."


class _NotedClient:
    """A client that notes which of its pushes were waited for."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.waited = set[Any]()

    def push(self, gradients: Any) -> Any:
        future = self._client.push(gradients)
        return _NotedPush(future, lambda: self.waited.add(future))


class _NotedPush:
    def __init__(self, future: Any, waited: Callable[[], None]) -> None:
        self._future, self._waited = future, waited

    def done(self) -> bool:
        return bool(self._future.done())

    def result(self, timeout: float | None = None) -> Any:
        self._waited()
        return self._future.result(timeout)
