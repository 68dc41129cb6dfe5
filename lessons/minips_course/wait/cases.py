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
    "wait.1": {
        "as strict as BSP": ("clock // self.every * self.every", "clock"),
        "nobody waits": ("slowest >= last_meeting", "True"),
        "SSP": ("clock // self.every * self.every", "clock - self.every"),
        "the meeting before": ("clock // self.every * self.every", "(clock // self.every - 1) * self.every"),
        "the slowest's meetings": ("slowest >= last_meeting", "slowest // self.every >= clock // self.every - 1"),
        "a bound of its own": ("self.every", "4"),
        "in rounds": ("return None", "return workers"),
    },
    "wait.2": {
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
    },
    "wait.3": {
        "BSP": ("done[c - staleness].max()", "done[c].max()"),
        "nobody waits": ("c > staleness", "False"),
        "a clock too early": ("done[c - staleness].max()", "done[c - staleness - 1].max()"),
        "the fastest is waited for": ("done[c - staleness].max()", "done[c - staleness].min()"),
        "the first to be done": ("done[-1].max()", "done[-1].min()"),
        "the sum": ("done[-1].max()", "done[-1].sum()"),
    },
}
"""Maps an exercise and an error to a piece of the solution and the wrong piece that replaces it."""

MUTANT = (
    "SSP waits for nobody",
    "minips/stages/consistency.py",
    "return slowest >= clock - self.staleness",
    "return True",
)
"""An SSP rule that never makes a worker wait."""
