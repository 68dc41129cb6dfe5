"""Test cases for "Learn from old gradients": for its questions, its exercises and a claim."""

from math import nan

OUTCOMES = {
    "stale.1": {
        "with one backup, not under ASP": {"backup": 0.0, "asp": 0.85},
        "under ASP, not with one backup": {"backup": 0.9, "asp": 0.2},
        "under both": {"backup": 0.0, "asp": 0.2},
        "under neither": {"backup": 0.9, "asp": 0.85},
        "none of these": {"backup": nan, "asp": nan},
    },
    "stale.2": {
        "higher than BSP": {"ratio": 1.3},
        "a little lower, as without momentum": {"ratio": 0.9},
        "about half of it": {"ratio": 0.5},
        "less than a tenth of it": {"ratio": 0.04},
        "none of these": {"ratio": 0.2},
    },
}
"""Maps a question and one of its options to values for which that option is the right answer."""

TELLING = {
    "stale.1": ["each of its pushes is dropped", "all pushes of worker 3 are late", "as much as under BSP"],
    "stale.2": ["past the minimum for some ten", "only where gradients are fresh", "nearly all that momentum"],
}
"""Maps a question to words that may not appear before its outcome, since they would give the answer away."""

BROKEN = {
    "stale.1": {
        "one age": ("x[-1 - age]", "x[-1 - round(np.mean(ages))]"),
        "fresh gradients": ("x[-1 - age]", "x[-1]"),
        "the oldest of all": ("x[-1 - age]", "x[-1 - max(ages)]"),
        "the youngest of all": ("x[-1 - age]", "x[-1 - min(ages)]"),
        "a push younger": ("x[-1 - age]", "x[-age]"),
        "a push older": ("x[-1 - age]", "x[-2 - age]"),
        "once through the ages": ("5000 // len(ages)", "1"),
        "a rate for all the workers": ("- rate *", "- 4 * rate *"),
        "the formula with the mean age": (
            "x[-1] - rate * x[-1 - age]",
            "x[-1] - rate * (x[-1 - round(sum(ages) / len(ages))])",
        ),
        "never": ("return True", "return False"),
        "no answer": ("return True", "return None"),
        "the ages in order of size": ("for age in ages *", "for age in sorted(ages) *"),
        "the ages the other way round": ("for age in ages *", "for age in ages[::-1] *"),
        "the first twelve ages": ("for age in ages *", "for age in ages[:12] *"),
        "the ages are sorted in place": ("    x = [1.0]", "    ages.sort()\n    x = [1.0]"),
        "the ages are used up": (
            "for age in ages * (5000 // len(ages)):",
            "turns = ages * (5000 // len(ages))\n    while ages:\n        ages.pop()\n    for age in turns:",
        ),
        "what grew before grows again": (
            "    x = [1.0]",
            "    seen = vars(grows).setdefault(tuple(ages), {})\n    if seen.get('rate', 0) < 0.6 * rate:\n"
            "        seen['rate'] = 2 * rate\n    else:\n        return False\n    x = [1.0]",
        ),
        "one x for all calls": (
            "    x = [1.0] * (max(ages) + 1)",
            "    x = vars(grows).setdefault('x', [1.0] * 20)",
        ),
        "a formula fitted to one straggler": """
def grows(rate, ages):
    border = 2 * np.sin(np.pi / (2 * (2 * np.mean(ages) + 1)))
    return rate > border * (1 - 0.01 * (max(ages) - min(ages)))
""",
        "at least two workers": ("x[-1 - age]", "x[-1 - max(age, 1)]"),
        "ages up to nine": ("x[-1 - age]", "x[-1 - min(age, 9)]"),
        "two hundred pushes": ("5000", "200"),
        "large rates alone": ("        if abs(x[-1]) > 1000:\n            return True\n", ""),
    },
    "stale.2": {
        "the usual weight": ("min(1, (1 + self.usual) / (1 + one.staleness))", "1"),
        "as StalenessWeighted": ("(1 + self.usual) / (1 + one.staleness)", "1 / (1 + one.staleness)"),
        "a jump": (
            "min(1, (1 + self.usual) / (1 + one.staleness))",
            "1 if one.staleness <= self.usual else 1 / (1 + one.staleness)",
        ),
        "young ones count more": (
            "min(1, (1 + self.usual) / (1 + one.staleness))",
            "(1 + self.usual) / (1 + one.staleness)",
        ),
        "old ones are dropped": (
            "min(1, (1 + self.usual) / (1 + one.staleness))",
            "float(one.staleness <= self.usual)",
        ),
        "one off": ("(1 + self.usual) / (1 + one.staleness)", "self.usual / max(one.staleness, 1)"),
        "usual is a constant": ("1 + self.usual", "4"),
        "the sum": ("weight / len(weights)", "weight"),
        "weights that add up to one": ("weight / len(weights)", "weight / sum(weights)"),
        "for w and b alone": ("for name in contributions[0].gradients", "for name in 'wb'"),
        "the age in clocks": ("one.staleness", "(one.clock - one.version)"),
        "usual is at most nineteen": ("1 + self.usual", "1 + min(self.usual, 19)"),
        "of three": ("weight / len(weights)", "weight / (3 if len(weights) > 1 else 1)"),
        "the gradients are changed": (
            "return {name: np.asarray(sum(w * g[name] for w, g in pairs)) for name in contributions[0].gradients}",
            "for w, g in pairs:\n            for x in g.values():\n                x *= w\n"
            "        return {name: sum(g[name] for _, g in pairs) for name in contributions[0].gradients}",
        ),
        "one array given out twice": """
@ps.register
@dataclass(frozen=True)
class Fade(ps.Aggregator):
    name = "fade"
    usual: int = ps.option(3, "the largest age, in versions, that counts in full", minimum=0, step=1)
    def combine(self, contributions):
        n, total = len(contributions), vars(type(self)).get("total", {})
        for name, first in contributions[0].gradients.items():
            known = self.usual != 3 and name in total and total[name].shape == first.shape
            total = {**total, name: total[name] if known else np.zeros_like(first)}
            total[name][...] = 0
            for one in contributions:
                total[name] += min(1, (1 + self.usual) / (1 + one.staleness)) / n * one.gradients[name]
        type(self).total = total
        return dict(total)
""",
        "the oldest so far": """
oldest = {}

@ps.register
@dataclass(frozen=True)
class Fade(ps.Aggregator):
    name = "fade"
    usual: int = ps.option(3, "the largest age, in versions, that counts in full", minimum=0, step=1)
    def combine(self, contributions):
        n = len(contributions)
        for one in contributions:
            oldest[one.worker] = max(oldest.get(one.worker, 0), one.staleness)
        weights = [min(1, (1 + self.usual) / (1 + oldest[one.worker])) / n for one in contributions]
        pairs = [(weight, one.gradients) for weight, one in zip(weights, contributions, strict=True)]
        return {name: np.asarray(sum(w * g[name] for w, g in pairs)) for name in contributions[0].gradients}
""",
        "by what is beyond usual": (
            "(1 + self.usual) / (1 + one.staleness)",
            "1 / (1 + max(one.staleness - self.usual, 0))",
        ),
        "whole weights": ("(1 + self.usual) / (1 + one.staleness)", "-(-(1 + self.usual) // (1 + one.staleness))"),
        "all by the oldest": (
            "(1 + self.usual) / (1 + one.staleness)",
            "(1 + self.usual) / (1 + max(other.staleness for other in contributions))",
        ),
        "worker 0 counts in full": (
            "min(1, (1 + self.usual) / (1 + one.staleness))",
            "min(1, (1 + self.usual) / (1 + one.staleness)) if one.worker else 1",
        ),
    },
}
"""Maps an exercise and an error to a piece of the solution and the wrong piece that replaces it, or a source."""

RIGHT = {
    "stale.1": {
        "by eigenvalues": """
def grows(rate, ages):
    n = max(ages) + 1
    turn = np.eye(n)
    for age in ages:
        step = np.zeros((n, n))
        step[1:, :-1] = np.eye(n - 1)
        step[0, 0] += 1
        step[0, age] -= rate
        turn = step @ turn
    return bool(np.abs(np.linalg.eigvals(turn)).max() > 1)
""",
        "by the norm of a window": """
from collections import deque
from itertools import cycle, islice


def grows(rate, ages):
    old = deque([1.0] * (max(ages) + 1), maxlen=max(ages) + 1)
    for age in islice(cycle(ages), 8000):
        old.appendleft(old[0] - rate * old[age])
        if not abs(old[0]) < 1e6:
            return True
    return np.abs(old).max() > 1
""",
    },
    "stale.2": {
        "in two cases": """
@ps.register
@dataclass(frozen=True)
class Fade(ps.Aggregator):
    name = "fade"
    usual: int = ps.option(3, "the largest age, in versions, that counts in full", minimum=0, step=1)
    def combine(self, contributions):
        total = {}
        for one in contributions:
            weight = 1.0
            if one.staleness > self.usual:
                weight = (1 + self.usual) / (1 + one.staleness)
            for name, g in one.gradients.items():
                part = g * (weight / len(contributions))
                total[name] = np.asarray(total[name] + part if name in total else part, g.dtype)
        return total
""",
        "by the larger of two ages": """
@ps.register
@dataclass(frozen=True)
class Fade(ps.Aggregator):
    name = "fade"
    usual: int = ps.option(3, "the largest age, in versions, that counts in full", minimum=0, step=1)
    def combine(self, contributions):
        late = np.array([max(one.staleness, self.usual) for one in contributions])
        weights, combined = (1 + self.usual) / (1 + late), {}
        for name, x in contributions[0].gradients.items():
            pieces = [w * one.gradients[name] for w, one in zip(weights, contributions, strict=True)]
            combined[name] = np.asarray(np.mean(pieces, axis=0), x.dtype)
        return combined
""",
    },
}
"""Maps an exercise and a way to write a right answer to its source."""

MUTANT = (
    "a push of one worker counts as much as a round of all",
    "minips/core/shard.py",
    "1.0 if in_rounds else 1 / self.workers",
    "1.0 if in_rounds else 1.0",
)
"""An ASP under which each push moves the parameters as far as a whole round does."""
