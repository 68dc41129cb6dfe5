"""Test cases for "Mend a lecture's server": for its questions, its exercises and a claim."""

OUTCOMES = {
    "lecture.1": {
        "the server's parameters alone": {"stopped": False, "server": 1.0, "worker": 0.0},
        "the worker's parameters alone": {"stopped": False, "server": 0.0, "worker": 1.0},
        "the parameters of both": {"stopped": False, "server": 1.0, "worker": 1.0},
        "no parameters: the call ends with an error": {"stopped": True, "server": 0.0, "worker": 0.0},
        "none of these": {"stopped": False, "server": 0.0, "worker": 0.0},
    },
    "lecture.2": {
        "at most two thirds as long": {"ratio": 0.4},
        "about as long, within a factor of 1.5": {"ratio": 1.1},
        "more than 1.5 times as long": {"ratio": 2.6},
        "none of these": {"ratio": 0.0},
    },
}
"""Maps a question and one of its options to values for which that option is the right answer."""

TELLING = {
    "lecture.1": ["copy", "copies", "copied", "never hears"],
    "lecture.2": ["2.6 times", "any method of any object"],
}
"""Maps a question to words that may not appear before its outcome, since they would give the answer away."""

BROKEN = {
    "lecture.1": {
        "calls the copy": ("reference.rpc_sync().apply(", "reference.to_here().apply("),
        "reads all of it": ("reference.rpc_sync().pull()", "reference.to_here().params"),
        "asks for what another process owns": ("reference.rpc_sync().pull()", "reference.local_value().params"),
        "pulls once": (
            "    for _ in range(steps):\n        params = reference.rpc_sync().pull()",
            "    params = reference.rpc_sync().pull()\n    for _ in range(steps):",
        ),
        "a step too few": ("range(steps)", "range(steps - 1)"),
        "pushes twice": (
            "        reference.rpc_sync().apply(gradient(params))",
            "        g = gradient(params)\n        for _ in (1, 2):\n            reference.rpc_sync().apply(g)",
        ),
        "no history": ("        self.history.append(gradients)\n", ""),
        "the history comes along": (
            """return self.params


def work(reference, gradient, steps):
    for _ in range(steps):
        params = reference.rpc_sync().pull()
""",
            """return self.params, self.history


def work(reference, gradient, steps):
    for _ in range(steps):
        params, _ = reference.rpc_sync().pull()
""",
        ),
        "the answer brings everything": (
            "self.params = self.params - 0.5 * gradients",
            "self.params = self.params - 0.5 * gradients\n        return self.params, self.history",
        ),
        "does nothing": ("        reference.rpc_sync().apply(gradient(params))", "        gradient(params)"),
        "no pull": ("reference.rpc_sync().pull()", "np.zeros(3)"),
        "a future that nobody waits for": ("reference.rpc_sync().pull()", "reference.rpc_async().pull()"),
        "a push that nobody waits for": ("reference.rpc_sync().apply(", "reference.rpc_async().apply("),
        "waits too late": (
            """    for _ in range(steps):
        params = reference.rpc_sync().pull()
        reference.rpc_sync().apply(gradient(params))""",
            """    sent = []
    for _ in range(steps):
        params = reference.rpc_sync().pull()
        sent.append(reference.rpc_async().apply(gradient(params)))
    for one in sent:
        one.wait()""",
        ),
        "asks whether it is done": ("reference.rpc_sync().pull()", "reference.rpc_async().pull().value()"),
        "one history for all models": """
class Model:
    history = []

    def __init__(self, size):
        self.params = np.zeros(size)
        self.history.clear()

    def apply(self, gradients):
        self.history.append(gradients)
        self.params = self.params - 0.5 * gradients

    def pull(self):
        return self.params


def work(reference, gradient, steps):
    for _ in range(steps):
        reference.rpc_sync().apply(gradient(reference.rpc_sync().pull()))
""",
        "steps by itself": """
class Model:
    def __init__(self, size):
        self.params, self.history = np.zeros(size), []

    def apply(self, gradients):
        self.history.append(gradients)
        self.params = self.params - 0.5 * gradients

    def pull(self):
        return self.params


def work(reference, gradient, steps):
    params = reference.rpc_sync().pull()
    for _ in range(steps):
        gradients = gradient(params)
        reference.rpc_sync().apply(gradients)
        params = params - 0.5 * gradients
""",
        "puts its own parameters there": """
class Model:
    def __init__(self, size):
        self.params, self.history = np.zeros(size), []

    def apply(self, gradients):
        self.history.append(gradients)

    def pull(self):
        return self.params

    def put(self, params):
        self.params = params


def work(reference, gradient, steps):
    for _ in range(steps):
        params = reference.rpc_sync().pull()
        gradients = gradient(params)
        reference.rpc_sync().apply(gradients)
        reference.rpc_sync().put(params - 0.5 * gradients)
""",
        "the history comes along as lists": (
            """return self.params


def work(reference, gradient, steps):
    for _ in range(steps):
        params = reference.rpc_sync().pull()
""",
            """return self.params, [one.tolist() for one in self.history]


def work(reference, gradient, steps):
    for _ in range(steps):
        params, _ = reference.rpc_sync().pull()
""",
        ),
        "at least one step": (
            "    for _ in range(steps):\n",
            "    for _ in range(max(steps, 1)):\n",
        ),
        "two gradients a step": ("apply(gradient(params))", "apply((gradient(params) + gradient(params)) / 2)"),
        "remembers the last alone": ("self.history.append(gradients)", "self.history = [gradients]"),
        "remembers the parameters": ("self.history.append(gradients)", "self.history.append(self.params)"),
        "another rate": ("0.5 * gradients", "0.1 * gradients"),
        "pulls every second step": (
            "    for _ in range(steps):\n        params = reference.rpc_sync().pull()",
            "    for step in range(steps):\n"
            "        if step % 2 == 0:\n"
            "            params = reference.rpc_sync().pull()",
        ),
        "the whole model, once": (
            "    for _ in range(steps):\n        params = reference.rpc_sync().pull()",
            "    reference.to_here()\n"
            "    for _ in range(steps):\n"
            "        reference.to_here()\n"
            "        params = reference.rpc_sync().pull()",
        ),
    },
    "lecture.2": {
        "waits each time": ("[client.push(gradients) for", "[client.push(gradients).result(10) or Done() for"),
        "never waits": ("        future.result(10)", "        pass"),
        "only half of them": ("for future in waiting:", "for future in waiting[: calls // 2]:"),
        "sends half": ("for _ in range(calls)]", "for _ in range(calls // 2)]"),
        "the other way round": ("return one_by_one, together", "return together, one_by_one"),
        "the clock stops too early": (
            "    for future in waiting:\n        future.result(10)\n    together = perf_counter() - began\n",
            "    together = perf_counter() - began\n    for future in waiting:\n        future.result(10)\n",
        ),
        "made up": ("return one_by_one, together", "return 1.0, 0.1"),
        "one number": ("return one_by_one, together", "return together"),
        "the first part does not wait": (
            "        client.push(gradients).result(10)\n    one_by_one",
            "        client.push(gradients)\n    one_by_one",
        ),
        "two at a time": (
            "    waiting = [client.push(gradients) for _ in range(calls)]\n"
            "    for future in waiting:\n"
            "        future.result(10)\n",
            "    for start in range(0, calls, 2):\n"
            "        for future in [client.push(gradients) for _ in range(min(2, calls - start))]:\n"
            "            future.result(10)\n",
        ),
        "waits once the half is sent": (
            "    waiting = [client.push(gradients) for _ in range(calls)]\n",
            "    waiting = [client.push(gradients) for _ in range(calls - 1)]\n"
            "    waiting[0].result(10) if waiting else None\n"
            "    waiting.append(client.push(gradients))\n",
        ),
        "waits for the last alone": ("for future in waiting:", "for future in waiting[-1:]:"),
        "one clock for both": (
            "    began = perf_counter()\n    waiting",
            "    waiting",
        ),
        "the clock starts too late": (
            "    began = perf_counter()\n    waiting = [client.push(gradients) for _ in range(calls)]\n",
            "    waiting = [client.push(gradients) for _ in range(calls)]\n    began = perf_counter()\n",
        ),
        "for each call": ("return one_by_one, together", "return one_by_one / calls, together / calls"),
        "in milliseconds": ("return one_by_one, together", "return 1000 * one_by_one, 1000 * together"),
        "the whole, shared by a guess": (
            "return one_by_one, together",
            "whole = one_by_one + together\n    return 0.88 * whole, 0.12 * whole",
        ),
        "nothing is pushed the second time": (
            "waiting = [client.push(gradients) for",
            "waiting = [client.push({name: 0 * g for name, g in gradients.items()}) for",
        ),
        "the gradients grow": (
            "    began = perf_counter()\n    waiting",
            "    for g in gradients.values():\n        g += 0.001 * g\n    began = perf_counter()\n    waiting",
        ),
        "the first measurement again": """
measured = []


def measure(client, gradients, calls):
    began = perf_counter()
    for _ in range(calls):
        client.push(gradients).result(10)
    one_by_one = perf_counter() - began

    began = perf_counter()
    waiting = [client.push(gradients) for _ in range(calls)]
    for future in waiting:
        future.result(10)
    measured.append((one_by_one, perf_counter() - began))
    return measured[0]
""",
    },
}
"""Maps an exercise and an error to a wrong answer, or to a piece of the solution and what replaces it."""

RIGHT = {
    "lecture.1": {
        "futures that are waited for": """
class Model:
    def __init__(self, size):
        self.params = np.zeros(size)
        self.history = list()

    def apply(self, gradients):
        self.history.append(gradients)
        self.params -= 0.5 * gradients

    def newest(self):
        return self.params.copy()


def work(reference, gradient, steps):
    for _ in range(steps):
        newest = reference.rpc_async().newest().wait()
        reference.rpc_async().apply(gradient(newest)).wait()
""",
        "the answer to a push has the parameters": """
class Model:
    def __init__(self, size):
        self.params, self.history = np.zeros(size), []

    def apply(self, gradients):
        self.history.append(gradients)
        self.params = self.params - 0.5 * gradients
        return self.params

    def read(self):
        return self.params


def work(reference, gradient, steps):
    calls = reference.rpc_sync()
    params = calls.read()
    while steps > 0:
        params = calls.apply(gradient(params))
        steps -= 1
""",
    },
    "lecture.2": {
        "another clock": """
import time


def measure(client, gradients, calls):
    def send():
        return client.push(gradients)

    start = time.monotonic()
    for _ in range(calls):
        send().result()
    middle = time.monotonic()
    futures = []
    while len(futures) < calls:
        futures.append(send())
    while futures:
        futures.pop().result()
    return middle - start, time.monotonic() - middle
""",
        "two functions": """
def seconds(work):
    began = perf_counter()
    work()
    return perf_counter() - began


def measure(client, gradients, calls):
    def in_turn():
        for _ in range(calls):
            client.push(gradients).result(10)

    def at_once():
        [future.result(10) for future in [client.push(gradients) for _ in range(calls)]]

    return [seconds(in_turn), seconds(at_once)]
""",
    },
}
"""Maps an exercise and what is special to another right answer."""

MUTANT = (
    "SGD adds the gradient",
    "minips/stages/optimizers/base.py",
    "np.subtract(p, np.multiply(",
    "np.add(p, np.multiply(",
)
"""An optimizer that adds the gradient, and so raises the loss."""
