"""Test cases for "Enter the race": for its questions, its exercises and a claim."""

from math import nan

OUTCOMES = {
    "race.1": {
        "about 8 times": {"fewer": 8.0},
        "about 32 times": {"fewer": 31.0},
        "more than 64 times": {"fewer": 130.0},
        "none of these": {"fewer": 2.0},
    },
    "race.2": {
        "less than twice as long": {"times": 1.1},
        "2 to 5 times as long": {"times": 3.0},
        "more than 5 times as long, or it does not get there": {"times": float("inf")},
        "none of these": {"times": nan},
    },
}
"""Maps a question and one of its options to values for which that option is the right answer."""

TELLING = {
    "race.1": ["fewer steps", "the rate saves", "times the steps"],
    "race.2": ["applied alone", "spoils", "stays large"],
}
"""Maps a question to words that may not appear before its outcome, since they would give the answer away."""

ROUND = "consistency=ps.BSP(backup=1)"
PULL = "    pull=ps.Codec(ps.Uniform(bits=4), ps.Delta()),\n"
PUSH = "    push=ps.Codec(ps.Uniform(bits=4), ps.ErrorFeedback()),\n"

BROKEN = {
    "race.1": {
        "as it was": (f"    {ROUND},\n    aggregator=ps.Median(),\n", "    consistency=ps.ASP(),\n"),
        "the defaults": 'entry = "import minips as ps\\n\\nconfig = ps.Config()\\n"',
        "the fastest": """
entry = '''
import minips as ps

config = ps.Config(consistency=ps.ASP(), optimizer=ps.Adagrad(lr=0.05), batch_size=8)
'''
""",
        "a median that waits for nobody": (ROUND, "consistency=ps.ASP()"),
        "a median that waits for all": (ROUND, "consistency=ps.BSP()"),
        "a mean that waits for seven": ("aggregator=ps.Median()", "aggregator=ps.Mean()"),
        "all bits": (PUSH + PULL, ""),
        "all bits of a pull": (PULL, ""),
        "an exchange after each step": ("    local=ps.LocalSteps(4, ps.SGD(lr=1.0)),\n", ""),
        "a mean that waits for all": (f"{ROUND},\n    aggregator=ps.Median(),", "consistency=ps.BSP(),"),
        "few bytes, too slow": """
entry = '''
import minips as ps

config = ps.Config(
    workers=8,
    push=ps.Codec(ps.Uniform(bits=2), ps.ErrorFeedback()),
    pull=ps.Codec(ps.Uniform(bits=2), ps.Delta()),
    consistency=ps.BSP(),
    aggregator=ps.Median(),
    optimizer=ps.SGD(lr=1.0),
    local=ps.LocalSteps(8, ps.SGD(lr=1.0)),
    steps=600,
)
'''
""",
        "a rate that is too small": ("ps.SGD(lr=1.0)", "ps.SGD(lr=0.1)"),
        "imports os": ("import minips as ps\n", "import os\n\nimport minips as ps\n"),
        "reads the rows": ("config = ", "rows = ps.datasets.digits()\nconfig = "),
        "sets its own delays": ("    workers=8,\n", "    workers=8,\n    delays=ps.Delays(1e-6),\n"),
        "a ring": (f"{ROUND},\n    aggregator=ps.Median(),", 'exchange="ring",'),
        "another name": ("config = ", "my_config = "),
        "no Python": ("config = ps.Config(", "config = ps.Config(("),
        "a config, not a text": "import minips as ps\n\nentry = ps.Config()",
    },
    "race.2": {
        "as it was": """
@ps.register
@dataclass(frozen=True)
class Bounded(ps.Aggregator):
    name = "bounded"
    most: float = 3.0

    def combine(self, contributions):
        return ps.Mean().combine(contributions)
""",
        "each tensor by itself": (
            "np.sqrt(sum(np.square(g, dtype=float).sum() for g in one.gradients.values()))",
            "max(np.sqrt(np.square(g, dtype=float).sum()) for g in one.gradients.values())",
        ),
        "without the root": (
            "np.sqrt(sum(np.square(g, dtype=float).sum() for g in one.gradients.values()))",
            "sum(np.square(g, dtype=float).sum() for g in one.gradients.values())",
        ),
        "the largest value": (
            "np.sqrt(sum(np.square(g, dtype=float).sum() for g in one.gradients.values()))",
            "max(np.abs(g).max() for g in one.gradients.values())",
        ),
        "makes short pushes longer": ("min(1, self.most / max(length, 1e-30))", "self.most / max(length, 1e-30)"),
        "drops long pushes": ("min(1, self.most / max(length, 1e-30))", "float(length <= self.most)"),
        "shortens what is short": (
            "min(1, self.most / max(length, 1e-30))",
            "self.most / (self.most + length)",
        ),
        "a bound of its own": ("self.most /", "3.0 /"),
        "changes the pushes": (
            "bounded.append(ps.Contribution(*one[:3], {name: scale * g for name, g in one.gradients.items()}))",
            "[np.multiply(g, scale, out=g) for g in one.gradients.values()]\n            bounded.append(one)",
        ),
        "the sum": (
            "ps.Mean().combine(bounded)",
            "{n: len(bounded) * g for n, g in ps.Mean().combine(bounded).items()}",
        ),
        "the mean, then the bound": """
@ps.register
@dataclass(frozen=True)
class Bounded(ps.Aggregator):
    name = "bounded"
    most: float = 3.0

    def combine(self, contributions):
        mean = ps.Mean().combine(contributions)
        length = np.sqrt(sum(np.square(g, dtype=float).sum() for g in mean.values()))
        scale = np.float32(min(1, self.most / max(length, 1e-30)))
        return {name: scale * g for name, g in mean.items()}
""",
        "the first push": ("ps.Mean().combine(bounded)", "bounded[0].gradients"),
        "the median": ("ps.Mean().combine(bounded)", "ps.Median().combine(bounded)"),
    },
}
"""Maps an exercise and an error to a piece of the solution and what replaces it, or to a whole wrong answer."""

RIGHT = {
    "race.1": {
        "a trimmed mean of seven": ("aggregator=ps.Median()", "aggregator=ps.TrimmedMean(trim=1)"),
        "a median of six, few words": """
entry = '''
from minips import BSP, SGD, Codec, Config, Delta, ErrorFeedback, LocalSteps, Median, Uniform

inner = SGD(lr=1.0)
bits = Uniform(bits=4)
wire = {"push": Codec(bits, ErrorFeedback()), "pull": Codec(bits, Delta())}
waits = {"workers": 8, "consistency": BSP(backup=2), "aggregator": Median()}
config = Config(optimizer=inner, local=LocalSteps(4, inner), steps=400, **wire, **waits)
'''
""",
        "a rule of its own, and nobody waits": """
entry = '''
from dataclasses import dataclass

import minips as ps
import numpy as np


@ps.register
@dataclass(frozen=True)
class Bounded(ps.Aggregator):
    name = "bounded"
    most: float = 3.0

    def combine(self, contributions):
        (one,) = contributions
        length = np.sqrt(sum(np.square(g, dtype=float).sum() for g in one.gradients.values()))
        scale = np.float32(min(1.0, self.most / max(length, 1e-30)))
        return {name: scale * g for name, g in one.gradients.items()}


config = ps.Config(
    push=ps.Codec(ps.Uniform(bits=4), ps.ErrorFeedback()),
    pull=ps.Codec(ps.Uniform(bits=4), ps.Delta()),
    consistency=ps.ASP(),
    aggregator=Bounded(),
    optimizer=ps.SGD(lr=1.0),
    local=ps.LocalSteps(4, ps.SGD(lr=1.0)),
    steps=600,
)
'''
""",
    },
    "race.2": {
        "by hand": """
@ps.register
@dataclass(frozen=True)
class Bounded(ps.Aggregator):
    name = "bounded"
    most: float = 3.0

    def combine(self, contributions):
        total = {}
        for one in contributions:
            squares = 0.0
            for g in one.gradients.values():
                squares += float(np.vdot(g.astype(float), g.astype(float)))
            scale = 1.0 if squares <= self.most**2 else self.most / squares**0.5
            for name, g in one.gradients.items():
                total[name] = total.get(name, 0.0) + scale * g.astype(float) / len(contributions)
        return {name: x.astype(contributions[0].gradients[name].dtype) for name, x in total.items()}
""",
        "one long vector": """
@ps.register
@dataclass(frozen=True)
class Bounded(ps.Aggregator):
    name = "bounded"
    most: float = 3.0

    def combine(self, contributions):
        first = contributions[0].gradients
        rows = np.array([np.concatenate([np.ravel(one.gradients[k]) for k in first]) for one in contributions], float)
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        mean = (rows * np.minimum(1, self.most / np.maximum(lengths, 1e-30))).mean(axis=0)
        ends = np.cumsum([g.size for g in first.values()])[:-1]
        parts = np.split(mean, ends)
        return {k: part.reshape(g.shape).astype(g.dtype) for (k, g), part in zip(first.items(), parts)}
""",
    },
}
"""Maps an exercise to right answers that are written differently."""

MUTANT = (
    "a round with backup workers waits for all of them",
    "minips/stages/consistency.py",
    "return workers - self.backup",
    "return workers",
)
"""Then a round waits for the straggler."""
