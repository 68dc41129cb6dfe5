"""Test cases for "Learn from old gradients": for its questions, its exercises and a claim."""

from math import nan

OUTCOMES = {
    "stale.3": {
        "lower with both": {"constant": 0.89, "random": 0.6},
        "higher with both": {"constant": 1.2, "random": 2.1},
        "lower with constant, higher with random": {"constant": 0.89, "random": 2.1},
        "higher with constant, lower with random": {"constant": 1.2, "random": 0.4},
        "none of these": {"constant": nan, "random": nan},
    },
    "stale.4": {
        "higher": {"ratio": 1.3},
        "a little lower": {"ratio": 0.9},
        "at about half of it": {"ratio": 0.5},
        "below a tenth of it": {"ratio": 0.04},
        "none of these": {"ratio": 0.2},
    },
}
"""Maps a question and one of its options to values for which that option is the right answer."""

TELLING = {
    "stale.3": ["whether the ages alone", "about twice BSP's", "twice as high", "a tenth lower"],
    "stale.4": ["past the minimum for some ten", "only where gradients are fresh", "nearly all that momentum"],
}
"""Maps a question to words that may not appear before its outcome, since they would give the answer away."""

BROKEN = {
    "stale.3": {
        "one age": ("x[-1 - age]", "x[-1 - round(np.mean(ages))]"),
        "fresh gradients": ("x[-1 - age]", "x[-1]"),
        "the oldest of all": ("x[-1 - age]", "x[-1 - max(ages)]"),
        "the youngest of all": ("x[-1 - age]", "x[-1 - min(ages)]"),
        "a push younger": ("x[-1 - age]", "x[-age]"),
        "a push older": ("x[-1 - age]", "x[max(-2 - age, -len(x))]"),
        "without momentum": ("momentum * v +", "0 * v +"),
        "an average for a velocity": ("momentum * v + x[-1 - age]", "momentum * v + (1 - momentum) * x[-1 - age]"),
        "the velocity a push later": (
            "            v = momentum * v + x[-1 - age]\n            x.append(x[-1] - rate * v)",
            "            x.append(x[-1] - rate * v)\n            v = momentum * v + x[-2 - age]",
        ),
        "Nesterov's momentum": ("- rate * v", "- rate * (x[-1 - age] + momentum * v)"),
        "once through the ages": ("5000 // len(ages)", "1"),
        "fifty pushes": ("5000", "50"),
        "a rate for all the workers": ("- rate *", "- 4 * rate *"),
        "to 30 %": ("1.01 * low", "1.3 * low"),
        "no rate above 1": ("0.001, 4.0", "0.001, 1.0"),
        "no rate below 0.1": ("0.001, 4.0", "0.1, 4.0"),
        "the ages in order of size": ("for age in ages *", "for age in sorted(ages) *"),
        "the ages the other way round": ("for age in ages *", "for age in ages[::-1] *"),
        "the first four ages": ("for age in ages *", "for age in ages[:4] *"),
        "the ages are sorted in place": ("    low, high = 0", "    ages.sort()\n    low, high = 0"),
        "ages up to four": ("x[-1 - age]", "x[-1 - min(age, 4)]"),
        "no answer": ("    return low", "    return None"),
        "what was found before": """
known = {}


def border(ages, momentum):
    def dies_out(rate):
        x, v = [1.0] * (max(ages) + 1), 0.0
        for age in ages * (5000 // len(ages)):
            v = momentum * v + x[-1 - age]
            x.append(x[-1] - rate * v)
            if abs(x[-1]) > 1e6:
                return False
        return max(map(abs, x[-200:])) < 1

    if (len(ages), momentum) in known:
        return known[len(ages), momentum]
    low, high = 0.001, 4.0
    while high > 1.01 * low:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if dies_out(middle) else (low, middle)
    known[len(ages), momentum] = low
    return low
""",
        "the formula of the lesson": """
def border(ages, momentum):
    return 2 * np.sin(np.pi / (2 * (2 * np.mean(ages) + 1))) * (1 - momentum)
""",
        "shortened for momentum": """
def border(ages, momentum):
    def dies_out(rate):
        x = [1.0] * (max(ages) + 1)
        for age in ages * (5000 // len(ages)):
            x.append(x[-1] - rate * x[-1 - age])
            if abs(x[-1]) > 1e6:
                return False
        return max(map(abs, x[-200:])) < 1

    low, high = 0.001, 4.0
    while high > 1.01 * low:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if dies_out(middle) else (low, middle)
    return low * (1 - momentum)
""",
        "one companion matrix, of the mean age": """
def border(ages, momentum):
    age = round(np.mean(ages))
    rates = np.geomspace(0.001, 4, 1000)
    for rate in rates:
        roots = np.zeros(max(age, 1) + 2)
        roots[:3] = 1, -1 - momentum, momentum
        roots[1 + age] += rate
        if np.abs(np.roots(roots)).max() > 1.0001:
            return rate
""",
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
    "stale.3": {
        "by eigenvalues": """
def border(ages, momentum):
    n = max(ages) + 1

    def grows(rate):
        turn = np.eye(n + 1)
        for age in ages:
            velocity = np.zeros(n + 1)
            velocity[age] += 1
            velocity[n] += momentum
            step = np.zeros((n + 1, n + 1))
            step[1:n, : n - 1] = np.eye(n - 1)
            step[0] = -rate * velocity
            step[0, 0] += 1
            step[n] = velocity
            turn = step @ turn
        return np.abs(np.linalg.eigvals(turn)).max() > 1

    low, high = 1e-4, 8.0
    for _ in range(20):
        middle = (low * high) ** 0.5
        if grows(middle):
            high = middle
        else:
            low = middle
    return middle
""",
        "all rates at once": """
from collections import deque


def border(ages, momentum):
    rates = np.geomspace(0.002, 4, 700)
    x = deque([np.ones(700)] * (max(ages) + 1), maxlen=max(ages) + 1)
    v = np.zeros(700)
    grown = np.zeros(700, bool)
    for _ in range(-(-6000 // len(ages))):
        for age in ages:
            v = momentum * v + x[-1 - age]
            x.append(x[-1] - rates * v)
        grown |= np.abs(x[-1]) > 1e4
        v[grown] = 0
        for one in x:
            one[grown] = 0
    ends = np.max(np.abs(np.array(x)), axis=0)
    return rates[np.argmax(grown | (ends > 1))]
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
