"""Test cases for "Mend a lecture's server": for its questions, its exercises and a claim."""

OUTCOMES = {
    "lecture.1": {
        "the server's parameters alone": {"stopped": False, "server": 1.0, "worker": 0.0},
        "the worker's parameters alone": {"stopped": False, "server": 0.0, "worker": 1.0},
        "the parameters of both": {"stopped": False, "server": 1.0, "worker": 1.0},
        "no parameters: the call ends with an error": {"stopped": True, "server": 0.0, "worker": 0.0},
        "none of these": {"stopped": False, "server": 0.0, "worker": 0.0},
    },
    "lecture.3": {
        "at most half as many": {"ratio": 0.2},
        "between half and twice as many": {"ratio": 1.2},
        "more than twice as many": {"ratio": 3.6},
        "none of these": {"ratio": 0.0},
    },
}
"""Maps a question and one of its options to values for which that option is the right answer."""

TELLING = {
    "lecture.1": ["copy", "copies", "copied", "never hears"],
    "lecture.3": ["name of the method each time", "3.6 times"],
}
"""Maps a question to words that may not appear before its outcome, since they would give the answer away."""

BROKEN = {
    "lecture.3": {
        "calls the copy": (
            "        sent = [reference.rpc_async().apply(g) for reference, g in zip(references, gradients)]\n"
            "        for future in sent:\n"
            "            future.wait()\n",
            "        for reference, g in zip(references, gradients):\n            reference.to_here().apply(g)\n",
        ),
        "reads all of it": (
            "        asked = [reference.rpc_async().pull() for reference in references]\n"
            "        gradients = gradient([future.wait() for future in asked])\n",
            "        gradients = gradient([reference.to_here().params for reference in references])\n",
        ),
        "asks for what another process owns": (
            "        asked = [reference.rpc_async().pull() for reference in references]\n"
            "        gradients = gradient([future.wait() for future in asked])\n",
            "        gradients = gradient([reference.local_value().params for reference in references])\n",
        ),
        "one owner after the other": """
class Part:
    def __init__(self, params):
        self.params, self.history = params, []

    def pull(self):
        return self.params

    def apply(self, gradients):
        self.history.append(gradients)
        self.params = self.params - 0.5 * gradients


def work(references, gradient, steps):
    for _ in range(steps):
        params = [reference.rpc_sync().pull() for reference in references]
        for reference, g in zip(references, gradient(params)):
            reference.rpc_sync().apply(g)
""",
        "waits for each at once": (
            "        asked = [reference.rpc_async().pull() for reference in references]\n"
            "        gradients = gradient([future.wait() for future in asked])\n",
            "        gradients = gradient([reference.rpc_async().pull().wait() for reference in references])\n",
        ),
        "pushes one after the other": (
            "        sent = [reference.rpc_async().apply(g) for reference, g in zip(references, gradients)]\n"
            "        for future in sent:\n"
            "            future.wait()\n",
            "        for reference, g in zip(references, gradients):\n            reference.rpc_sync().apply(g)\n",
        ),
        "a push that nobody waits for": ("        for future in sent:\n            future.wait()\n", ""),
        "waits for the last alone": ("for future in sent:", "for future in sent[-1:]:"),
        "waits too late": """
class Part:
    def __init__(self, params):
        self.params, self.history = params, []

    def pull(self):
        return self.params

    def apply(self, gradients):
        self.history.append(gradients)
        self.params = self.params - 0.5 * gradients


def work(references, gradient, steps):
    sent = []
    for _ in range(steps):
        asked = [reference.rpc_async().pull() for reference in references]
        for future in sent:
            future.wait()
        gradients = gradient([future.wait() for future in asked])
        sent = [reference.rpc_async().apply(g) for reference, g in zip(references, gradients)]
    for future in sent:
        future.wait()
""",
        "waits in the end": """
class Part:
    def __init__(self, params):
        self.params, self.history = params, []

    def pull(self):
        return self.params

    def apply(self, gradients):
        self.history.append(gradients)
        self.params = self.params - 0.5 * gradients


def work(references, gradient, steps):
    sent = []
    for _ in range(steps):
        asked = [reference.rpc_async().pull() for reference in references]
        gradients = gradient([future.wait() for future in asked])
        sent += [reference.rpc_async().apply(g) for reference, g in zip(references, gradients)]
    for future in sent:
        future.wait()
""",
        "asks whether it is done": ("[future.wait() for future in asked]", "[future.value() for future in asked]"),
        "pulls once": (
            "    for _ in range(steps):\n        asked = [reference.rpc_async().pull() for reference in references]\n",
            "    asked = [reference.rpc_async().pull() for reference in references]\n    for _ in range(steps):\n",
        ),
        "steps by itself": (
            "    for _ in range(steps):\n"
            "        asked = [reference.rpc_async().pull() for reference in references]\n"
            "        gradients = gradient([future.wait() for future in asked])\n",
            "    asked = [reference.rpc_async().pull() for reference in references]\n"
            "    params = [future.wait() for future in asked]\n"
            "    for _ in range(steps):\n"
            "        gradients = gradient(params)\n"
            "        params = [p - 0.5 * g for p, g in zip(params, gradients)]\n",
        ),
        "a step too few": ("range(steps)", "range(steps - 1)"),
        "at least one step": ("range(steps)", "range(max(steps, 1))"),
        "pushes twice": (
            "for future in sent:",
            "sent += [r.rpc_async().apply(g) for r, g in zip(references, gradients)]\n        for future in sent:",
        ),
        "the gradients change places": ("zip(references, gradients)", "zip(references[::-1], gradients)"),
        "the first part alone": ("zip(references, gradients)", "zip(references[:1], gradients)"),
        "two parts for sure": (
            "def work(references, gradient, steps):\n",
            "def work(references, gradient, steps):\n    references = references[:2]\n",
        ),
        "one array of all": (
            "gradient([future.wait() for future in asked])",
            "gradient(np.concatenate([future.wait() for future in asked]))",
        ),
        "no history": ("        self.history.append(gradients)\n", ""),
        "the history comes along": (
            "        return self.params\n",
            "        return self\n",
        ),
        "the answer brings everything": (
            "self.params = self.params - 0.5 * gradients",
            "self.params = self.params - 0.5 * gradients\n        return self.params, self.history",
        ),
        "does nothing": """
class Part:
    def __init__(self, params):
        self.params, self.history = params, []


def work(references, gradient, steps):
    pass
""",
        "one history for all parts": """
class Part:
    history = []

    def __init__(self, params):
        self.params = params
        self.history.clear()

    def pull(self):
        return self.params

    def apply(self, gradients):
        self.history.append(gradients)
        self.params = self.params - 0.5 * gradients


def work(references, gradient, steps):
    for _ in range(steps):
        asked = [reference.rpc_async().pull() for reference in references]
        sent = [r.rpc_async().apply(g) for r, g in zip(references, gradient([one.wait() for one in asked]))]
        [one.wait() for one in sent]
""",
        "remembers the last alone": ("self.history.append(gradients)", "self.history = [gradients]"),
        "another rate": ("0.5 * gradients", "0.1 * gradients"),
        "adds the gradient": ("self.params - 0.5", "self.params + 0.5"),
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
    "lecture.3": {
        "loops and other names": """
class Part:
    def __init__(self, params):
        self.params = params
        self.history = list()

    def apply(self, gradients):
        self.history.append(gradients)
        self.params -= 0.5 * gradients

    def newest(self):
        return self.params.copy()


def work(references, gradient, steps):
    while steps > 0:
        futures = []
        for reference in references:
            futures.append(reference.rpc_async().newest())
        newest = tuple(future.wait() for future in futures)
        futures = list(map(lambda one, g: one.rpc_async().apply(g), references, gradient(newest)))
        while futures:
            futures.pop().wait()
        steps -= 1
""",
        "the answer to a push has the parameters": """
class Part:
    def __init__(self, params):
        self.params, self.history = params, []

    def apply(self, gradients):
        self.history.append(gradients)
        self.params = self.params - 0.5 * gradients
        return self.params

    def read(self):
        return self.params


def work(references, gradient, steps):
    waiting = [reference.rpc_async().read() for reference in references]
    params = [one.wait() for one in waiting]
    for _ in range(steps):
        waiting = [one.rpc_async().apply(g) for one, g in zip(references, gradient(params), strict=True)]
        params = [one.wait() for one in waiting]
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
