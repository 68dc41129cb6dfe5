"""Test cases for "Write a server in forty lines": for its questions, its exercises and a claim."""

OUTCOMES = {
    "server.1": {
        "about as stale": {"four": 1.4, "eight": 1.5},
        "about twice as stale": {"four": 1.4, "eight": 3.2},
        "more than 3.5 times as stale": {"four": 1.4, "eight": 6.9},
        "none of these": {"four": 0.0, "eight": 3.2},
    },
    "server.2": {
        "not at all: every bit is the same": {"least": 0.0, "most": 0.0},
        "by rounding: less than a hundred-thousandth of the largest parameter": {"least": 1e-8, "most": 1e-7},
        "by more than rounding, in each of five pairs": {"least": 0.01, "most": 0.03},
        "none of these": {"least": 0.0, "most": 0.03},
    },
}
"""Maps a question and one of its options to values for which that option is the right answer."""

TELLING = {
    "server.1": ["n − 1", "2.3 times"],
    "server.2": ["more than rounding", "operating system decides", "depends on the order of arrival"],
}
"""Maps a question to words that may not appear before its outcome, since they would give the answer away."""

STEP = "p -= self.lr * sum(self.held[i][name] for i in range(self.workers)) / self.workers"

BROKEN = {
    "server.1": {
        "applies each push at once": ("len(self.held) < self.workers", "False"),
        "one push too early": ("< self.workers:", "< self.workers - 1:"),
        "never whole": ("< self.workers:", "<= self.workers:"),
        "the sum": (" / self.workers", ""),
        "the last push alone": (STEP, "p -= self.lr * tensors[name]"),
        "in the order of arrival": (
            STEP,
            "p -= self.lr * sum(push[name] for push in self.held.values()) / self.workers",
        ),
        "uphill": ("p -=", "p +="),
        "a rate of its own": ("p -= self.lr *", "p -= 0.1 *"),
        "keeps the old round": ("        self.held = {}\n        return", "        return"),
        "answers the last one alone": (
            'return [(i, ("applied", {})) for i in range(self.workers)]',
            'return [(worker, ("applied", {}))]',
        ),
        "answers early, too": ("return []", 'return [(worker, ("applied", {}))]'),
        "another word": ('(i, ("applied", {}))', '(i, ("done", {}))'),
        "no answer to a pull": ('return [(worker, ("params", self.params))]', "return []"),
        "two workers only": ("range(self.workers)) / self.workers", "range(2)) / 2"),
        "does nothing": (STEP, "pass"),
    },
    "server.2": {
        "any kind goes": ('kind != "push"', "False"),
        "shapes go": ("!= self.params[name].shape", "is None"),
        "names go": ("tensors.keys() != self.params.keys()", "False"),
        "too few names go": ("tensors.keys() != self.params.keys()", "tensors.keys() - self.params.keys()"),
        "no sentence": ('(worker, ("error", wrong))', '(worker, ("error", ""))'),
        "no list": ('[(worker, ("error", wrong))]', '("error", wrong)'),
        "silent": ('[(worker, ("error", wrong))]', "[]"),
        "refuses everything": (
            'if kind == "pull":\n            return ""',
            'if kind == "pull":\n            return "no"',
        ),
        "refuses each push": ('(gradient)}."\n        return ""', '(gradient)}."\n        return "no"'),
        "a push of None stops it": ("not isinstance(tensors, dict)", "False"),
        "None alone is no dict": ("not isinstance(tensors, dict)", "tensors is None"),
        "as many names": ("tensors.keys() != self.params.keys()", "len(tensors) != len(self.params)"),
        "as many values": (
            "np.shape(gradient) != self.params[name].shape",
            "np.size(gradient) not in (1, self.params[name].size)",
        ),
        "what numpy would not broadcast": (
            "np.shape(gradient) != self.params[name].shape",
            "np.broadcast_shapes(np.shape(gradient), self.params[name].shape) != self.params[name].shape",
        ),
        "one order of the names": ("tensors.keys() != self.params.keys()", "[*tensors] != [*self.params]"),
        "counted all the same": (
            'return [(worker, ("error", wrong))] if wrong else super().handle(worker, message)',
            """if wrong:
            super().handle(worker, ("push", {name: 0 * p for name, p in self.params.items()}))
            return [(worker, ("error", wrong))]
        return super().handle(worker, message)""",
        ),
        "hands on first": (
            "wrong = self.fault(*message)",
            "wrong, _ = self.fault(*message), super().handle(worker, message)",
        ),
    },
}
"""Maps an exercise and an error to a piece of the solution and the wrong piece that replaces it."""

MUTANT = (
    "BSP answers every pull at once",
    "minips/stages/consistency.py",
    "return slowest >= clock\n",
    "return True\n",
)
"""A BSP rule that never makes a worker wait."""
