"""Test cases for "Wait, or don't": for its questions, its exercises and a claim."""

from math import nan

OUTCOMES = {
    "wait.1": {
        "BSP with one backup worker": {"backup": 1.1, "ssp": 0.9, "asp": 0.3},
        "SSP, two clocks ahead": {"backup": 0.36, "ssp": 0.9, "asp": 0.3},
        "ASP, which never waits": {"backup": 0.36, "ssp": 0.9, "asp": 1.2},
        "none of these": {"backup": 0.36, "ssp": nan, "asp": 0.3},
    },
    "wait.2": {
        "about 1 mean time": {"ratio": 1.01},
        "about 2 mean times": {"ratio": 2.08},
        "about 4 mean times": {"ratio": 3.9},
        "none of these": {"ratio": 0.5},
    },
}
"""Maps a question and one of its options to values for which that option is the right answer."""

TELLING = {
    "wait.1": ["use up their lead", "head start"],
    "wait.2": ["a single long step", "2.08", "25/12"],
}
"""Maps a question to words that may not appear before its outcome, since they would give the answer away."""

BROKEN = {
    "wait.2": {
        "rounds, as before": """
class Server(Server):
    staleness = 2
""",
        "nobody waits": ("<= self.staleness", "<= 1000"),
        "a clock too few": ("<= self.staleness", "< self.staleness"),
        "a clock too many": ("<= self.staleness", "<= self.staleness + 1"),
        "behind the fastest": ("min(self.clocks)", "max(self.clocks)"),
        "a bound of its own": ("<= self.staleness", "<= 2"),
        "the sender alone is answered": ("for one in self.waiting if", "for one in {worker} if"),
        "answered twice": ("        self.waiting -= free\n", ""),
        "one is freed, and all are answered": ("for one in sorted(free)", "for one in range(self.workers)"),
        "the whole gradient": ("self.lr / self.workers", "self.lr"),
        "those far from the start are never answered": (
            "self.waiting.add(worker)",
            "self.waiting |= {worker} if self.clocks[worker] <= self.staleness else set()",
        ),
        "for W and b alone": (
            "for name, p in self.params.items()",
            "for name, p in ((n, self.params[n]) for n in 'Wb')",
        ),
        "a rate of its own": ("self.lr / self.workers", "0.25 / self.workers"),
        "the push is changed": (
            "p -= self.lr / self.workers * tensors[name]",
            "tensors[name] *= self.lr / self.workers\n            p -= tensors[name]",
        ),
        "for at most five workers": ("self.clocks[one] - min(self.clocks)", "self.clocks[one] - min(self.clocks[:5])"),
        "bounds above fifty are none": ("<= self.staleness", "<= (self.staleness if self.staleness <= 8 else 1000)"),
        "one is freed at a time": (
            "        self.waiting -= free",
            "        free = set(sorted(free)[:1])\n        self.waiting -= free",
        ),
        "the clocks are of the class": """
class Server(Server):
    staleness = 2
    clocks = {}

    def __init__(self, params, workers, lr):
        super().__init__(params, workers, lr)
        self.clocks.clear()
        self.clocks.update({one: 0 for one in range(workers)})
        self.waiting = set()

    def handle(self, worker, message):
        kind, tensors = message
        if kind != "push":
            return super().handle(worker, message)
        for name, p in self.params.items():
            p -= self.lr / self.workers * tensors[name]
        self.clocks[worker] += 1
        self.waiting.add(worker)
        free = {one for one in self.waiting if self.clocks[one] - min(self.clocks.values()) <= self.staleness}
        self.waiting -= free
        return [(one, ("applied", {})) for one in sorted(free)]
""",
        "those who wait are of the class": """
class Server(Server):
    staleness = 2
    waiting = set()

    def __init__(self, params, workers, lr):
        super().__init__(params, workers, lr)
        self.clocks = [0] * workers

    def handle(self, worker, message):
        kind, tensors = message
        if kind != "push":
            return super().handle(worker, message)
        for name, p in self.params.items():
            p -= self.lr / self.workers * tensors[name]
        self.clocks[worker] += 1
        self.waiting.add(worker)
        free = {one for one in self.waiting if one < self.workers}
        free = {one for one in free if self.clocks[one] - min(self.clocks) <= self.staleness}
        self.waiting.difference_update(free)
        return [(one, ("applied", {})) for one in sorted(free)]
""",
        "keeps every push": (
            "        self.clocks[worker] += 1",
            "        self.log = [*getattr(self, 'log', []), tensors]\n        self.clocks[worker] += 1",
        ),
        "a pull is a clock, too": (
            '        if kind != "push":\n',
            '        if kind != "push":\n            self.clocks[worker] += 0 if worker in self.waiting else 1\n',
        ),
        "applied once it is answered": """
class Server(Server):
    staleness = 2

    def __init__(self, params, workers, lr):
        super().__init__(params, workers, lr)
        self.clocks, self.waiting = [0] * workers, {}

    def handle(self, worker, message):
        kind, tensors = message
        if kind != "push":
            return super().handle(worker, message)
        self.clocks[worker] += 1
        self.waiting[worker] = tensors
        free = [one for one in self.waiting if self.clocks[one] - min(self.clocks) <= self.staleness]
        for one in free:
            gradient = self.waiting.pop(one)
            for name, p in self.params.items():
                p -= self.lr / self.workers * gradient[name]
        return [(one, ("applied", {})) for one in free]
""",
        "positive gradients": ("* tensors[name]", "* np.abs(tensors[name])"),
    },
    "wait.3": {
        "BSP": ("done[c - staleness].max()", "done[c].max()"),
        "nobody waits": ("c > staleness", "False"),
        "a clock too early": ("done[c - staleness].max()", "done[c - staleness - 1].max()"),
        "the fastest is waited for": ("done[c - staleness].max()", "done[c - staleness].min()"),
        "the first to be done": ("done[-1].max()", "done[-1].min()"),
        "the sum": ("done[-1].max()", "done[-1].sum()"),
        "BSP or no waiting at all": (
            "    return done[-1].max()",
            "    return times.max(axis=1).sum() if staleness == 0 else times.sum(axis=0).max()",
        ),
        "meets every few clocks": (
            "    return done[-1].max()",
            "    parts = [times[c : c + staleness + 1] for c in range(0, len(times), staleness + 1)]\n"
            "    return sum(part.sum(axis=0).max() for part in parts)",
        ),
        "waits for the worker that is slowest in all": (
            "done[c - staleness].max()",
            "done[c - staleness, times.sum(axis=0).argmax()]",
        ),
        "waits for the next worker": ("done[c - staleness].max()", "np.roll(done[c - staleness], 1)"),
        "whole seconds": (
            "np.zeros((len(times) + 1, times.shape[1]))",
            "np.zeros((len(times) + 1, times.shape[1]), int)",
        ),
        "the times are changed": (
            "        done[c + 1] = start + times[c]",
            "        times[c] += start\n        done[c + 1] = times[c]",
        ),
        "up to three clocks ahead": ("done[c - staleness].max()", "done[c - min(staleness, 3)].max()"),
        "what is known from before is used": """
ends = {}


def finish_time(times, staleness):
    for c in range(len(times)):
        gate = max([ends.get((c - staleness, w), 0.0) for w in range(times.shape[1])])
        for w in range(times.shape[1]):
            ends[c + 1, w] = max(ends.get((c, w), 0.0), gate) + times[c, w]
    return max(ends.values())
""",
        "answers by shape": (
            "    return done[-1].max()",
            "    return vars(finish_time).setdefault((times.shape, staleness), done[-1].max())",
        ),
        "at most nine clocks": ("for c in range(len(times))", "for c in range(min(len(times), 9))"),
        "the mean worker": ("done[c - staleness].max()", "done[c - staleness].mean()"),
    },
}
"""Maps an exercise and an error to a piece of the solution and the wrong piece that replaces it, or a source."""

RIGHT = {
    "wait.2": {
        "a list of those who wait": """
class Server(Server):
    staleness = 2

    def __init__(self, params, workers, lr):
        super().__init__(params, workers, lr)
        self.pushes = np.zeros(workers, int)
        self.waiting = []

    def handle(self, worker, message):
        kind, gradient = message
        if kind == "pull":
            return [(worker, ("params", self.params))]
        for name in gradient:
            self.params[name] = self.params[name] - self.lr / self.workers * gradient[name]
        self.pushes[worker] += 1
        self.waiting.append(worker)
        border = self.pushes.min() + self.staleness
        answers = [(one, ("applied", {})) for one in self.waiting if self.pushes[one] <= border]
        self.waiting = [one for one in self.waiting if self.pushes[one] > border]
        return answers
""",
        "a flag for each worker": """
class Server(Server):
    staleness = 2

    def __init__(self, params, workers, lr):
        super().__init__(params, workers, lr)
        self.clocks, self.owed = [0] * workers, [False] * workers

    def handle(self, worker, message):
        if message[0] != "push":
            return super().handle(worker, message)
        for name, p in self.params.items():
            p -= (message[1][name] * (self.lr / self.workers)).astype(p.dtype)
        self.clocks[worker] += 1
        self.owed[worker] = True
        answers = []
        for one in range(self.workers):
            if self.owed[one] and all(self.clocks[one] <= other + self.staleness for other in self.clocks):
                self.owed[one] = False
                answers.append((one, ("applied", {})))
        return answers
""",
    },
    "wait.3": {
        "event by event": """
def finish_time(times, staleness):
    clocks, workers = times.shape
    ends = {(0, w): 0.0 for w in range(workers)}
    for c in range(1, clocks + 1):
        gate = max(ends[max(c - 1 - staleness, 0), w] for w in range(workers))
        for w in range(workers):
            ends[c, w] = max(ends[c - 1, w], gate) + times[c - 1, w]
    return max(ends[clocks, w] for w in range(workers))
""",
        "by recursion": """
from functools import cache


def finish_time(times, staleness):
    @cache
    def done(c):
        if c <= 0:
            return np.zeros(times.shape[1])
        return np.maximum(done(c - 1), done(c - 1 - staleness).max()) + times[c - 1]

    return float(done(len(times)).max())
""",
    },
}
"""Maps an exercise and a way to write a right answer to its source."""

MUTANT = (
    "SSP waits for nobody",
    "minips/stages/consistency.py",
    "return slowest >= clock - self.staleness",
    "return True",
)
"""An SSP rule that never makes a worker wait."""
