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
    },
}
"""Maps an exercise and an error to a piece of the solution and the wrong piece that replaces it."""

MUTANT = (
    "SGD adds the gradient",
    "minips/stages/optimizers/base.py",
    "np.subtract(p, np.multiply(",
    "np.add(p, np.multiply(",
)
"""An optimizer that adds the gradient, and so raises the loss."""
