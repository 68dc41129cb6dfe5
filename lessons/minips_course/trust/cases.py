"""Test cases for "Trust nobody": for its questions, its exercises and a claim."""

from math import nan

OUTCOMES = {
    "trust.1": {
        "nearly as many": {"share": 0.9},
        "about half as many": {"share": 0.5},
        "at most a third of them": {"share": 0.21},
        "none of these": {"share": nan},
    },
    "trust.2": {
        "the mean": {"Mean": 0.5, "Median": 0.9, "TrimmedMean": 0.9, "Krum": 0.9},
        "the median": {"Mean": 0.9, "Median": 0.4, "TrimmedMean": 0.9, "Krum": 0.9},
        "the trimmed mean, trim = 1": {"Mean": 0.9, "Median": 0.9, "TrimmedMean": 0.3, "Krum": 0.9},
        "Krum, bad = 1": {"Mean": 0.9, "Median": 0.9, "TrimmedMean": 0.9, "Krum": 0.2},
        "no rule: they differ by less than 10 percentage points": {
            "Mean": 0.9,
            "Median": 0.9,
            "TrimmedMean": 0.9,
            "Krum": 0.9,
        },
        "none of these": {"Mean": nan, "Median": 0.9, "TrimmedMean": 0.9, "Krum": 0.9},
    },
}
"""Maps a question and one of its options to values for which that option is the right answer."""

TELLING = {
    "trust.1": ["a fifth of 100", "follow the noise", "cannot make up"],
    "trust.2": ["nearer to them", "takes the zeros", "chooses the zeros", "one whole gradient"],
}
"""Maps a question to words that may not appear before its outcome, since they would give the answer away."""

BROKEN = {
    "trust.3": {
        "minips' own Krum": """
@ps.register
@dataclass(frozen=True)
class MyKrum(ps.Aggregator):
    name = "mykrum"
    bad: int = 1

    def combine(self, contributions):
        return ps.Krum(bad=self.bad).combine(contributions)
""",
        "a Krum by another name": """
@ps.register
@dataclass(frozen=True)
class MyKrum(ps.Krum):
    name = "mykrum"
""",
        "the mean": ("return contributions[np.argmin(sums)].gradients", "return ps.Mean().combine(contributions)"),
        "the median": ("return contributions[np.argmin(sums)].gradients", "return ps.Median().combine(contributions)"),
        "itself is counted as a neighbour": ("[1 : n - self.bad - 1]", "[: n - self.bad - 2]"),
        "one neighbour too many": ("[1 : n - self.bad - 1]", "[1 : n - self.bad]"),
        "all neighbours": ("[1 : n - self.bad - 1]", "[1:]"),
        "the nearest neighbour alone": ("[1 : n - self.bad - 1]", "[1:2]"),
        "for five workers and one liar": ("[1 : n - self.bad - 1]", "[1:3]"),
        "for one liar": ("n - self.bad - 1", "n - 2"),
        "roots of the distances": ("sum(sorted(row)[", "sum(np.sqrt(sorted(row))["),
        "the largest sum": ("np.argmin(sums)", "np.argmax(sums)"),
        "copies are left out": ("sorted(row)[1 : n - self.bad - 1]", "sorted(d for d in row if d)[: n - self.bad - 2]"),
        "the first tensor alone": ("in one.gradients.items()", "in [*one.gradients.items()][:1]"),
        "for W and b alone": (
            "for name, x in one.gradients.items()",
            "for name, x in [(k, one.gradients[k]) for k in 'Wb']",
        ),
        "by the worker's number": (
            "contributions[np.argmin(sums)]",
            "contributions[contributions[np.argmin(sums)].worker]",
        ),
        "the first choice for ever": (
            "np.argmin(sums)",
            "vars(MyKrum.combine).setdefault((n, self.bad), np.argmin(sums))",
        ),
        "each tensor by itself": """
@ps.register
@dataclass(frozen=True)
class MyKrum(ps.Aggregator):
    name = "mykrum"
    bad: int = 1

    def combine(self, contributions):
        n, chosen = len(contributions), {}
        for name in contributions[0].gradients:
            pieces = [one.gradients[name].astype(float) for one in contributions]
            sums = [sum(sorted(np.square(a - b).sum() for b in pieces)[1 : n - self.bad - 1]) for a in pieces]
            chosen[name] = contributions[np.argmin(sums)].gradients[name]
        return chosen
""",
        "the shortest": """
@ps.register
@dataclass(frozen=True)
class MyKrum(ps.Aggregator):
    name = "mykrum"
    bad: int = 1

    def combine(self, contributions):
        return min(contributions, key=lambda one: sum(np.square(g).sum() for g in one.gradients.values())).gradients
""",
        "nearest to the mean": """
@ps.register
@dataclass(frozen=True)
class MyKrum(ps.Aggregator):
    name = "mykrum"
    bad: int = 1

    def combine(self, contributions):
        middle = ps.Mean().combine(contributions)
        return min(
            contributions, key=lambda one: sum(np.square(g - middle[n]).sum() for n, g in one.gradients.items())
        ).gradients
""",
        "the mean of two": (
            "return contributions[np.argmin(sums)].gradients",
            "return ps.Mean().combine([contributions[i] for i in np.argsort(sums)[:2]])",
        ),
        "the gradients are changed": (
            "return contributions[np.argmin(sums)].gradients",
            "for name, x in contributions[0].gradients.items():\n            x *= 2\n"
            "        return contributions[np.argmin(sums)].gradients",
        ),
    },
    "trust.2": {
        "noise": ("np.sign(g)", "part.rng.normal(size=g.shape)"),
        "each its own side": ("part.truth(params)", "gradient"),
        "downhill": ("-1000", "1000"),
        "too gently": ("-1000", "-0.001"),
        "one tensor": ("-1000 * np.sign(g)", "-1000 * np.sign(g) if name == 'b' else g"),
        "not finite": ("-1000", "-np.inf"),
        "for W and b alone": (
            "{name: -1000 * np.sign(g) for name, g in part.truth(params).items()}",
            "{name: -1000 * np.sign(part.truth(params)[name]) for name in 'Wb'}",
        ),
        "for digits alone": (
            "{name: -1000 * np.sign(g) for name, g in part.truth(params).items()}",
            "{n: -1000 * np.sign(part.truth(params)[n]) * np.ones((64, 10) if n == 'W' else 10) for n in gradient}",
        ),
        "the parameters are changed": (
            "    return",
            "    for p in params.values():\n        p *= 0.999\n    return",
        ),
        "the gradient is changed": ("    return", "    for g in gradient.values():\n        g *= -1000\n    return"),
        "the first run alone": (
            "    return",
            "    my_lie.calls = getattr(my_lie, 'calls', 0) + 1\n"
            "    if my_lie.calls > 130:\n        return gradient\n    return",
        ),
        "one traitor alone": (
            "    return",
            "    worker = part.rng.bit_generator.seed_seq.entropy\n"
            "    if worker == max(part.traitors):\n        return gradient\n    return",
        ),
        "another shape": ("np.sign(g)", "np.sign(g).reshape(-1)[:1]"),
        "now and then": ("-1000", "(-1000 if part.rng.random() < 0.3 else 1)"),
        "the largest value alone": ("np.sign(g)", "np.where(np.abs(g) == np.abs(g).max(), np.sign(g), 0)"),
        "honest rows": ("-1000 * np.sign(g)", "g"),
    },
}
"""Maps an exercise and an error to a piece of the solution and the wrong piece that replaces it, or a source."""

RIGHT = {
    "trust.3": {
        "by one long vector": """
@ps.register
@dataclass(frozen=True)
class MyKrum(ps.Aggregator):
    name = "mykrum"
    bad: int = 1

    def combine(self, contributions):
        flat = np.array([np.concatenate([np.ravel(g) for g in c.gradients.values()]) for c in contributions], float)
        squares = ((flat[:, None] - flat[None]) ** 2).sum(axis=2)
        keep = len(contributions) - self.bad - 2
        nearest = np.sort(squares, axis=1)[:, 1 : keep + 1]
        return {name: g.copy() for name, g in contributions[int(nearest.sum(axis=1).argmin())].gradients.items()}
""",
        "the best so far": """
@ps.register
@dataclass(frozen=True)
class MyKrum(ps.Aggregator):
    name = "mykrum"
    bad: int = 1

    def combine(self, contributions):
        best, lowest = contributions[0], float("inf")
        for i, one in enumerate(contributions):
            squares = []
            for j, other in enumerate(contributions):
                if i != j:
                    gaps = [np.linalg.norm(one.gradients[name] - other.gradients[name]) for name in one.gradients]
                    squares.append(sum(float(gap) ** 2 for gap in gaps))
            total = sum(sorted(squares)[: len(contributions) - self.bad - 2])
            if total < lowest:
                best, lowest = one, total
        return best.gradients
""",
    },
    "trust.2": {
        "far on the other side of the truth": """
def my_lie(part, params, gradient):
    truth = part.truth(params)
    lies = {}
    for name in gradient:
        lies[name] = np.where(truth[name] > 0, -1e6, 1e6)
    return lies
""",
        "the truth, many times and turned round": """
def my_lie(part, params, gradient):
    return {name: -1e9 * g for name, g in part.truth(params).items()}
""",
    },
}
"""Maps an exercise and a way to write a right answer to its source."""

MUTANT = (
    "the median takes the largest value of each coordinate",
    "minips/stages/aggregators/robust.py",
    "np.median(pieces, axis=0)",
    "np.max(pieces, axis=0)",
)
"""A median that returns the largest value of each coordinate."""
