"""The exercises of "Mend a lecture's server"."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import minips as ps
from minips.lab.course.exercises import are_two, asks, case, number, refuse_if
from minips.stage import Array


@asks(
    "lecture.1",
    "A copy is good for reading. To change the server's object, call its methods through the reference.",
    "Push with reference.rpc_sync().apply(…). To read only the parameters, call a method that returns them.",
    "Add a method to Model that returns self.params. In each step make two calls through reference.rpc_sync(): one to "
    "that method, and one to apply, with the gradient for the parameters that it returned.",
)
def lost_steps(pair: Any, rng: np.random.Generator) -> str:
    """Compute each gradient from the newest parameters, apply it to the server's object, and send nothing large."""
    are_two(pair, "Model", "work")
    model, work = pair
    for steps in (1, 2, int(rng.integers(20, 40))):
        with case(f"With {steps} steps:"):
            _train(model, work, steps, rng)
    return "Each gradient used the newest parameters and reached the server; nothing larger than these was sent."


def _train(model: Callable[[int], Any], work: Callable[..., Any], steps: int, rng: np.random.Generator) -> None:
    from minips_course.lecture.programs import Reference

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
        others.rpc_sync().apply(push(rng.normal(size=size)))  # another worker pushes meanwhile
        return push(rng.normal(size=size))

    work(reference, gradient, steps)
    count = len(pushed) // 2
    refuse_if(count != steps, f"gradient was called {count} times, expected {steps}.")
    near = np.shape(owned.params) == (size,) and np.allclose(owned.params, wanted)
    refuse_if(not near, "the server's parameters are not the result of all gradients together.")
    kept = len(owned.history) == len(pushed) and all(map(np.array_equal, owned.history, pushed))
    refuse_if(not kept, f"the history has {len(owned.history)} gradients; expected all {len(pushed)}, in order.")
    limit = wanted.nbytes
    refuse_if(
        reference.largest > limit,
        f"something of {reference.largest} bytes was sent; the parameters have {limit}. Is the history sent?",
    )


@asks(
    "lecture.2",
    "push returns a future immediately. The loop is slow because result() waits for the answer.",
    "Keep the futures of all pushes in a list, and go through that list afterwards.",
    "Write two loops in the second part: one that only sends, and one that only calls result(10) on each future. Stop "
    "the clock after the second loop.",
)
def together(measure: Any, rng: np.random.Generator) -> str:
    """Return the seconds for pushes that each wait for an answer, and for as many pushes all sent before any wait."""
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
            refuse_if(arrived != 2 * calls, f"{arrived} pushes were applied, expected {2 * calls}.")
            waited = len(watched.waited)
            refuse_if(waited != 2 * calls, f"it waited for {waited} of {2 * calls} answers.")
            refuse_if(not (isinstance(found, tuple) and len(found) == 2), f"it returned {found!r}, not two numbers.")
            first, second = map(number, found)
            least = 1.8 * latency
            refuse_if(first < calls * least, "the first part is too short: each push must wait for its answer.")
            refuse_if(second < least, "the second part is too short for a message there and back.")
            refuse_if(not 0.8 * took < first + second <= took, "the two times do not add up to the call's duration.")
            refuse_if(second > first / 2, f"the second part takes {second / first:.0%} of the first. Does it wait?")
            shares.append(second / first)
    return f"Sent together, the pushes take {np.mean(shares):.0%} of the time of those that wait one by one."


class _NotedClient:
    """A client that records which of its pushes were waited for."""

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
