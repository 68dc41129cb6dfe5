"""The exercises of "Mend a lecture's server"."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import minips as ps
from minips.lab.course.exercises import Refused, are_two, asks, case, number, refuse_if
from minips.stage import Array, Tensors
from minips.testing.base import same_bits
from minips_course.arrays import copied, drawn_tensors

SMALL = 64
"""The bytes by which a message may exceed the parameters."""
EXPECTED = "gradient was not called with a list of arrays, one for each part."
SLACK_S = 0.002
"""The seconds by which two clocks may differ."""


@asks(
    "lecture.3",
    "A call through rpc_async() returns a future at once. Make all calls of one kind first, and keep their futures.",
    "Part needs two methods: pull returns self.params, and apply appends the gradient to history and makes the step.",
    "In each step of work: a list of futures of pull(), one for each reference; a list of what their wait() returns; "
    "gradient of that list; a list of futures of apply(…); and wait() for each of these.",
)
def two_parts(pair: Any, rng: np.random.Generator) -> str:
    """Train parts that other processes own: two trips a step, the newest parameters, each gradient, nothing large."""
    are_two(pair, "Part", "work")
    part, work = pair
    for steps, sizes in ((1, (1, 2)), (2, (60, 3)), (0, (3,)), (int(rng.integers(20, 40)), rng.integers(9, 90, 3))):
        with case(f"With {steps} steps and {len(sizes)} parts of {', '.join(map(str, sizes))} parameters:"):
            _train(part, work, steps, [rng.normal(size=size) for size in sizes], rng)
    return (
        "Each gradient used the newest parameters and reached its owner, in two trips a step, and nothing large went."
    )


def _train(
    part: Callable[[Array], Any], work: Callable[..., Any], steps: int, wanted: list[Array], rng: np.random.Generator
) -> None:
    from minips_course.lecture.programs import Reference, Trips

    owned, another, trips = [part(w.copy()) for w in wanted], part(np.zeros(3)), Trips()
    references, others = [Reference(one, trips) for one in owned], [Reference(one, Trips()) for one in owned]
    pushed: list[list[Array]] = [[] for _ in wanted]

    def push() -> list[Array]:
        for w, all_ in zip(wanted, pushed, strict=True):
            all_.append(rng.normal(size=w.shape))
            w -= 0.5 * all_[-1]
        return [all_[-1].copy() for all_ in pushed]

    def gradient(params: Any) -> list[Array]:
        turn = f"in step {len(pushed[0]) // 2 + 1}"
        refuse_if(not isinstance(params, list | tuple) or len(params) != len(wanted), f"{turn}, {EXPECTED}")
        newest = [np.shape(p) == w.shape and np.allclose(p, w) for p, w in zip(params, wanted, strict=True)]
        refuse_if(not all(newest), f"{turn}, gradient was not called with the newest parameters of each part.")
        for other, g in zip(others, push(), strict=True):  # another worker pushes meanwhile
            other.rpc_sync().apply(g)
        return push()

    work(references, gradient, steps)
    late = sum(not promise.done() for reference in references for promise in reference.promised)
    refuse_if(late, f"nobody waited for the results of {late} calls through rpc_async: they may come late, or fail.")
    overtaking = sum(reference.overtaking for reference in references)
    refuse_if(overtaking, f"{overtaking} calls were sent before an earlier call to the same owner was waited for.")
    count = len(pushed[0]) // 2
    refuse_if(count != steps, f"gradient was called {count} times, expected {steps}.")
    for one, w, all_, reference in zip(owned, wanted, pushed, references, strict=True):
        near = np.shape(one.params) == w.shape and np.allclose(one.params, w)
        refuse_if(not near, "a part's parameters are not the result of all gradients together.")
        kept = len(one.history) == len(all_) and all(map(np.array_equal, one.history, all_))
        refuse_if(not kept, f"a history has {len(one.history)} gradients; expected all {len(all_)}, in order.")
        refuse_if(
            reference.largest > w.nbytes + SMALL,
            f"something of {reference.largest} bytes was sent; the part has {w.nbytes}. Is the history sent?",
        )
    refuse_if(another.history or np.any(another.params), "another Part changed as well. Is something in the class?")
    most = 2 * steps + 1
    refuse_if(trips.now > most, f"it took {trips.now} trips, expected {2 * steps}. Ask all owners, then wait for all.")


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
    for calls, slow_s in ((int(rng.integers(4, 8)), 0), (1, 3 * SLACK_S), (int(rng.integers(2, 5)), 2 * SLACK_S)):
        latency = float(rng.uniform(0.008, 0.012))
        config = ps.Config(workers=1, optimizer=ps.SGD(lr=0.5), link=ps.Link(bandwidth_bps=1e9, latency_s=latency))
        gradients = drawn_tensors(rng, 2)
        params: Tensors = {name: np.zeros_like(g) for name, g in gradients.items()}
        with (
            ps.Server(params, config).serve() as server,
            ps.connect(server.address, config, token=server.token) as client,
            case(f"With {calls} calls on a link of {1000 * latency:.0f} milliseconds:"),
        ):
            watched, given = _Watched(client, slow_s), copied(gradients)
            found = measure(watched, given, calls)
            ended = time.perf_counter()
            _sends(watched, calls)
            whole = all(np.allclose(server.params[name], -calls * g) for name, g in gradients.items())
            refuse_if(not whole, f"the server did not apply the gradients {2 * calls} times.")
            same = all(same_bits(given[name], g) for name, g in gradients.items())
            refuse_if(not same, "it changed the gradients that it was given.")
            if not (isinstance(found, tuple | list) and len(found) == 2):
                raise Refused(f"it returned {found!r}, not two numbers.")
            first, second = map(number, found)
            watched.compare(first, second, calls, ended)
            shares.append(second / first)
    return f"Sent together, the pushes take {shares[0]:.0%} of the time of those that wait one by one."


def _sends(watched: "_Watched", calls: int) -> None:
    """Refuse pushes unless half wait one by one, and the others are sent before any of these is waited for."""
    sent, answered = watched.sent, watched.answered
    refuse_if(len(sent) != 2 * calls, f"it sent {len(sent)} pushes, expected {2 * calls}.")
    refuse_if(len(answered) != 2 * calls, f"it waited for {len(answered)} of {2 * calls} answers.")
    for n in range(calls):
        early = answered[n] > sent[n + 1]
        refuse_if(early, f"push {n + 1} of the first part was not waited for before the next one was sent.")
    waited = max(sent[calls:]) > min(answered[n] for n in range(calls, 2 * calls))
    refuse_if(waited, "the second part waits for an answer before all its pushes are sent.")


class _Watched:
    """A client that notes when each push was sent, and when somebody had waited for its answer."""

    def __init__(self, client: Any, slow_s: float) -> None:
        self._client, self._slow_s, self._began = client, slow_s, time.perf_counter()
        self.sent: list[float] = []
        self.answered: dict[int, float] = {}

    def push(self, gradients: Any) -> Any:
        number = len(self.sent)
        self.sent.append(time.perf_counter())
        time.sleep(self._slow_s)  # sending takes time, too
        return _WatchedPush(self._client.push(gradients), partial(self._note, number))

    def _note(self, number: int) -> None:
        self.answered.setdefault(number, time.perf_counter())

    def compare(self, first: float, second: float, calls: int, ended: float) -> None:
        """Raise `Refused` unless the seconds of both parts are what they took here, at any load of the machine."""
        waited, done = self.answered[calls - 1], max(self.answered.values())
        for which, seconds, least, most in (
            ("first", first, waited - self.sent[0], self.sent[calls] - self._began),
            ("second", second, done - self.sent[calls], ended - waited),
        ):
            told = f"it says {seconds:.4f} s for the {which} part, which took between {least:.4f} and {most:.4f} s"
            refuse_if(not least - SLACK_S <= seconds <= most + SLACK_S, f"{told}. Start and stop the clock there.")


class _WatchedPush:
    def __init__(self, future: Any, note: Callable[[], None]) -> None:
        self._future, self._note = future, note

    def done(self) -> bool:
        return bool(self._future.done())

    def result(self, timeout: float | None = None) -> Any:
        answer = self._future.result(timeout)
        self._note()
        return answer
