"""Test cases for "Write a server that waits": for its questions, its exercises and a claim."""

OUTCOMES = {
    "server.2": {
        "not at all: every bit is the same": {"least": 0.0, "most": 0.0},
        "by rounding: less than a hundred-thousandth of the largest parameter": {"least": 1e-8, "most": 1e-7},
        "by more than rounding, in each of five pairs": {"least": 0.01, "most": 0.03},
        "none of these": {"least": 0.0, "most": 0.03},
    },
    "server.3": {
        "about as long": {"asp": 1.6, "bsp": 1.6},
        "about three quarters as long": {"asp": 1.2, "bsp": 1.6},
        "about a third as long": {"asp": 0.58, "bsp": 1.66},
        "none of these": {"asp": 0.8, "bsp": 1.6},
    },
}
"""Maps a question and one of its options to values for which that option is the right answer."""

TELLING = {
    "server.2": ["more than rounding", "operating system decides", "depends on the order of arrival"],
    "server.3": ["0.58", "at their own pace", "7 of 80", "few pushes", "a third"],
}
"""Maps a question to words that may not appear before its outcome, since they would give the answer away."""

SHAPE = 'getattr(tensors[name], "shape", None) != p.shape'
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
        "applies each push once those before it are there": """
class Server:
    def __init__(self, params, workers, lr):
        self.params, self.workers, self.lr = params, workers, lr
        self.held, self.next = {}, 0

    def handle(self, worker, message):
        kind, tensors = message
        if kind == "pull":
            return [(worker, ("params", self.params))]
        self.held[worker] = tensors
        while self.next in self.held:
            for name, gradient in self.held.pop(self.next).items():
                self.params[name] -= self.lr / self.workers * gradient
            self.next += 1
        if self.next < self.workers:
            return []
        self.next = 0
        return [(i, ("applied", {})) for i in range(self.workers)]
""",
        "answers from parameters that have changed already": """
class Server:
    def __init__(self, params, workers, lr):
        self.params, self.workers, self.lr = params, workers, lr
        self.held, self.next = {}, {name: p.copy() for name, p in params.items()}

    def handle(self, worker, message):
        kind, tensors = message
        if kind == "pull":
            return [(worker, ("params", self.next))]
        self.held[worker] = tensors
        for name, gradient in tensors.items():
            self.next[name] -= self.lr / self.workers * gradient
        if len(self.held) < self.workers:
            return []
        for name, p in self.params.items():
            p -= self.lr * sum(self.held[i][name] for i in range(self.workers)) / self.workers
            self.next[name][...] = p
        self.held = {}
        return [(i, ("applied", {})) for i in range(self.workers)]
""",
        "two names alone": (
            "for name, p in self.params.items():",
            "for name, p in [(name, self.params[name]) for name in ('W', 'w', 'b') if name in self.params]:",
        ),
        "by place and not by name": (
            STEP,
            "p -= self.lr * sum(list(self.held[i].values())[list(self.params).index(name)]"
            " for i in range(self.workers)) / self.workers",
        ),
        "one dict for all servers": """
class Server:
    held = {}

    def __init__(self, params, workers, lr):
        self.params, self.workers, self.lr = params, workers, lr

    def handle(self, worker, message):
        kind, tensors = message
        if kind == "pull":
            return [(worker, ("params", self.params))]
        self.held[worker] = tensors
        if len(self.held) < self.workers:
            return []
        for name, p in self.params.items():
            p -= self.lr * sum(self.held[i][name] for i in range(self.workers)) / self.workers
        self.held.clear()
        return [(i, ("applied", {})) for i in range(self.workers)]
""",
        "in the order of the numbers' text": (
            "for i in range(self.workers)) /",
            "for i in sorted(self.held, key=str)) /",
        ),
        "at most eight workers": ("range(self.workers)) /", "range(min(self.workers, 8))) /"),
        "keeps all rounds": (
            "        self.held = {}\n        return",
            "        self.past = [*getattr(self, 'past', []), self.held]\n        self.held = {}\n        return",
        ),
        "the first push takes the sum": (
            STEP,
            "\n            total = self.held[0][name]\n"
            "            for i in range(1, self.workers):\n"
            "                total += self.held[i][name]\n"
            "            p -= self.lr * total / self.workers",
        ),
        "no rate above 0.3": ("self.lr * sum", "min(self.lr, 0.3) * sum"),
        "a pull empties the round": (
            'if kind == "pull":\n',
            'if kind == "pull":\n            self.held = {}\n',
        ),
        "a pull applies the part of the round that is there": (
            'if kind == "pull":\n',
            'if kind == "pull" and self.held:\n'
            "            for name, p in self.params.items():\n"
            "                p -= self.lr * sum(push[name] for push in self.held.values()) / self.workers\n"
            "            self.held = {i: {name: 0 * g for name, g in push.items()} for i, push in self.held.items()}\n"
            '        if kind == "pull":\n',
        ),
        "a pull waits for the round, too": (
            'return [(worker, ("params", self.params))]',
            'return [] if self.held else [(worker, ("params", self.params))]',
        ),
        "the parameters for worker 0 alone": ('(worker, ("params", self.params))', '(0, ("params", self.params))'),
        "the third round is another": (
            "        self.held = {}\n        return",
            "        self.held = {}\n        self.lr *= 0.9\n        return",
        ),
        "no dict in the answer": ('("applied", {})', '("applied", None)'),
        "one push stands for all": (STEP, "p -= self.lr * self.held[0][name]"),
        "the largest worker's push ends the round": (
            "if len(self.held) < self.workers:",
            "if worker < self.workers - 1:",
        ),
    },
    "server.2": {
        "any kind goes": ('kind != "push"', "False"),
        "shapes go": ("!= p.shape", "is None"),
        "names go": ("tensors.keys() != self.params.keys()", "False"),
        "too few names go": ("tensors.keys() != self.params.keys()", "tensors.keys() - self.params.keys()"),
        "no sentence": ('(worker, ("error", wrong))', '(worker, ("error", ""))'),
        "no list": ('[(worker, ("error", wrong))]', '("error", wrong)'),
        "silent": ('[(worker, ("error", wrong))]', "[]"),
        "refuses everything": (
            'if kind == "pull":\n            return ""',
            'if kind == "pull":\n            return "no"',
        ),
        "refuses each push": ('{p.shape}."\n        return ""', '{p.shape}."\n        return "no"'),
        "a push of None stops it": ("not isinstance(tensors, dict)", "False"),
        "None alone is no dict": ("not isinstance(tensors, dict)", "tensors is None"),
        "as many names": ("tensors.keys() != self.params.keys()", "len(tensors) != len(self.params)"),
        "as many values": (
            SHAPE,
            "np.size(tensors[name]) not in (1, p.size)",
        ),
        "what numpy would not broadcast": (
            SHAPE,
            "np.broadcast_shapes(np.shape(tensors[name]), p.shape) != p.shape",
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
        "two names alone": (
            "tensors.keys() != self.params.keys()",
            "not {*tensors} <= {'w', 'b'} or 'w' not in tensors or 'b' not in tensors",
        ),
        "always worker 0": ('(worker, ("error", wrong))', '(0, ("error", wrong))'),
        "in capitals, too": ('kind != "push"', 'str(kind).strip().lower() != "push"'),
        "what begins like a push": ('kind != "push"', 'not str(kind).startswith("pu")'),
        "the round begins anew": (
            'return [(worker, ("error", wrong))] if wrong else',
            'if wrong:\n            self.held = {}\n            return [(worker, ("error", wrong))]\n        return',
        ),
        "the first gradient alone": (
            "in self.params.items():\n            if getattr",
            "in [*self.params.items()][:1]:\n            if getattr",
        ),
        "the last gradient alone": (
            "in self.params.items():\n            if getattr",
            "in [*self.params.items()][-1:]:\n            if getattr",
        ),
        "None has the shape of a scalar": (SHAPE, "np.shape(tensors[name]) != p.shape"),
        "a gradient that has no shape stops it": (SHAPE, "tensors[name].shape != p.shape"),
        "as many dimensions": (
            SHAPE,
            "getattr(tensors[name], 'ndim', None) != p.ndim",
        ),
        "the first dimension": (
            SHAPE,
            "np.shape(tensors[name])[:1] != p.shape[:1]",
        ),
        "without dimensions of 1": (
            SHAPE,
            "np.squeeze(tensors[name]).shape != p.squeeze().shape",
        ),
        "what is unknown is taken out of the message": (
            "        if tensors.keys() != self",
            "        for name in {*tensors} - {*self.params}:\n"
            "            del tensors[name]\n"
            "        if tensors.keys() != self",
        ),
        "trusts a worker that has once been good": """
class Careful(Server):
    def handle(self, worker, message):
        self.trusted = getattr(self, "trusted", set())
        kind, tensors = message
        good = kind == "pull" or worker in self.trusted and kind == "push" and isinstance(tensors, dict)
        if not good:
            good = kind == "push" and isinstance(tensors, dict) and tensors.keys() == self.params.keys()
            good = good and all(np.shape(g) == self.params[name].shape for name, g in tensors.items())
        if not good:
            return [(worker, ("error", "That is no good message."))]
        self.trusted.add(worker)
        return super().handle(worker, message)
""",
        "bars a worker after an error": """
class Careful(Server):
    barred = set()

    def handle(self, worker, message):
        kind, tensors = message
        good = kind == "pull" or kind == "push" and isinstance(tensors, dict)
        if kind == "push" and good:
            good = tensors.keys() == self.params.keys()
            good = good and all(np.shape(g) == self.params[name].shape for name, g in tensors.items())
        if not good or worker in self.barred:
            self.barred.add(worker)
            return [(worker, ("error", "That is no good message."))]
        return super().handle(worker, message)
""",
        "keeps what was bad": (
            "        wrong = self.fault(*message)\n",
            "        wrong = self.fault(*message)\n"
            "        self.bad = [*getattr(self, 'bad', []), *([message] if wrong else [])]\n",
        ),
        "tries it, and takes it back": """
class Careful(Server):
    def handle(self, worker, message):
        before = {name: p.copy() for name, p in self.params.items()}
        try:
            return super().handle(worker, message)
        except Exception as error:
            self.params = before
            return [(worker, ("error", f"It failed: {error}"))]
""",
        "the shapes of the first message": """
class Careful(Server):
    def handle(self, worker, message):
        kind, tensors = message
        good = kind == "pull" or kind == "push" and isinstance(tensors, dict)
        if kind == "push" and good:
            shapes = {name: np.shape(g) for name, g in tensors.items()}
            Careful.shapes = getattr(Careful, "shapes", shapes)
            good = shapes == Careful.shapes
        if not good:
            return [(worker, ("error", "That is no good message."))]
        return super().handle(worker, message)
""",
        "a server of another kind": """
class Careful(Server):
    def handle(self, worker, message):
        kind, tensors = message
        if kind == "pull":
            return [(worker, ("params", self.params))]
        good = kind == "push" and isinstance(tensors, dict) and tensors.keys() == self.params.keys()
        if not good or any(np.shape(g) != self.params[name].shape for name, g in tensors.items()):
            return [(worker, ("error", "That is no good message."))]
        for name, g in tensors.items():
            self.params[name] -= self.lr / self.workers * g
        return [(worker, ("applied", {}))]
""",
    },
}
"""Maps an exercise and an error to a wrong answer, or to a piece of the solution and what replaces it."""

RIGHT = {
    "server.1": {
        "a list of places": """
class Server:
    def __init__(self, params, workers, lr):
        self.params, self.workers, self.lr = params, workers, lr
        self.pushes = [None] * workers

    def handle(self, worker, message):
        kind, tensors = message
        if kind == "pull":
            return [(worker, ("params", self.params))]
        self.pushes[worker] = tensors
        answers = []
        if None not in self.pushes:
            for name in self.params:
                mean = sum(push[name] for push in self.pushes) / self.workers
                self.params[name] = self.params[name] - self.lr * mean
            self.pushes = [None] * self.workers
            answers = [(i, ("applied", {})) for i in range(self.workers)]
        return answers
""",
        "sorted at the end": """
class Server:
    def __init__(self, params, workers, lr):
        self.params, self.workers, self.lr, self.round = params, workers, lr, []

    def handle(self, worker, message):
        kind, tensors = message
        if kind == "pull":
            return [(worker, ("params", {name: p.copy() for name, p in self.params.items()}))]
        self.round.append((worker, tensors))
        if len(self.round) == self.workers:
            self.round.sort(key=lambda pair: pair[0])
            for _, gradients in self.round:
                for name, gradient in gradients.items():
                    self.params[name] -= self.lr / self.workers * gradient
            done, self.round = [worker for worker, _ in self.round], []
            return [(worker, ("applied", {})) for worker in done]
        return []
""",
        "NumPy's mean": """
class Server:
    def __init__(self, params, workers, lr):
        self.params, self.workers, self.lr = params, workers, lr
        self.held = {}

    def handle(self, worker, message):
        if message[0] == "pull":
            return [(worker, ("params", self.params))]
        self.held[worker] = message[1]
        if len(self.held) != self.workers:
            return []
        order = sorted(self.held)
        self.params = {
            name: p - self.lr * np.stack([self.held[i][name] for i in order]).mean(axis=0)
            for name, p in self.params.items()
        }
        self.held.clear()
        return [(i, ("applied", {})) for i in order]
""",
    },
    "server.2": {
        "by names and shapes at once": """
class Careful(Server):
    def handle(self, worker, message):
        kind, tensors = message
        expected = {name: p.shape for name, p in self.params.items()}
        if kind not in ("push", "pull"):
            return [(worker, ("error", f"The kind {kind!r} is unknown."))]
        if kind == "push":
            if not isinstance(tensors, dict):
                return [(worker, ("error", "A push needs a dict of gradients."))]
            got = {name: getattr(gradient, "shape", None) for name, gradient in tensors.items()}
            if got != expected:
                return [(worker, ("error", f"Expected {expected}, got {got}."))]
        return super().handle(worker, message)
""",
        "with an error of its own": """
class Careful(Server):
    def handle(self, worker, message):
        try:
            self.inspect(message)
        except ValueError as error:
            return [(worker, ("error", str(error)))]
        return Server.handle(self, worker, message)

    def inspect(self, message):
        kind, tensors = message
        if kind == "pull":
            return
        if kind != "push" or type(tensors) is not dict:
            raise ValueError("Expected a pull, or a push of a dict.")
        if set(tensors) != set(self.params):
            raise ValueError("The names differ from the parameters' names.")
        arrays = {name for name, gradient in tensors.items() if isinstance(gradient, np.ndarray)}
        wrong = [name for name, p in self.params.items() if name not in arrays or tensors[name].shape != p.shape]
        if wrong:
            raise ValueError(f"The gradients of {', '.join(wrong)} have another shape than the parameters.")
""",
    },
}
"""Maps an exercise and what is special to another right answer."""

MUTANT = (
    "BSP answers every pull at once",
    "minips/stages/consistency.py",
    "return slowest >= clock\n",
    "return True\n",
)
"""A BSP rule that never makes a worker wait."""
