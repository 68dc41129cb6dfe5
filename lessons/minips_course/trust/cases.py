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
    "trust.1": {
        "the mean": (" * (1 if length <= limit else limit / length)", ""),
        "all of one length": ("1 if length <= limit else limit / length", "limit / max(length, 1e-9)"),
        "the mean length": ("np.median(lengths)", "np.mean(lengths)"),
        "the shortest": ("np.median(lengths)", "np.min(lengths)"),
        "one tensor's length": ("c.gradients.values()", "list(c.gradients.values())[:1]"),
        "squared lengths": ("np.sqrt(sum(", "float(sum("),
        "nothing over nothing": ("length <= limit", "length < limit"),
        "always float64": ("np.asarray(total / len(contributions), first.dtype)", "total / len(contributions)"),
        "a worker's own array": ("np.zeros(first.shape)", "first"),
        "a sum": ("total / len(contributions)", "total"),
        "for w and b alone": (
            "for name, first in contributions[0].gradients.items()",
            "for name, first in ((n, contributions[0].gradients[n]) for n in 'wb')",
        ),
        "the middle of those in order": ("np.median(lengths)", "sorted(lengths)[len(lengths) // 2]"),
        "each tensor by itself": """
@ps.register
@dataclass(frozen=True)
class Clipped(ps.Aggregator):
    name = "clipped"

    def combine(self, contributions):
        combined = {}
        for name, first in contributions[0].gradients.items():
            pieces = [one.gradients[name] for one in contributions]
            lengths = [float(np.sqrt(np.square(g, dtype=float).sum())) for g in pieces]
            limit = float(np.median(lengths))
            shorter = [g * (1 if length <= limit else limit / length) for g, length in zip(pieces, lengths)]
            combined[name] = np.asarray(sum(shorter) / len(pieces), first.dtype)
        return combined
""",
        "for at most eight workers": ("np.median(lengths)", "np.median(lengths[:8])"),
        "the gradients are changed": (
            "total += one.gradients[name] * (1 if length <= limit else limit / length)",
            "one.gradients[name][...] *= 1 if length <= limit else limit / length\n"
            "                total += one.gradients[name]",
        ),
        "by the largest value": (
            "np.sqrt(sum(np.square(g, dtype=float).sum() for g in c.gradients.values()))",
            "max(float(np.abs(g).max(initial=0)) for g in c.gradients.values())",
        ),
        "by the absolute values": (
            "np.sqrt(sum(np.square(g, dtype=float).sum() for g in c.gradients.values()))",
            "sum(float(np.abs(g).sum()) for g in c.gradients.values())",
        ),
        "twice the median is allowed": (
            "length <= limit else limit / length",
            "length <= 2 * limit else 2 * limit / length",
        ),
        "the first limit for ever": (
            "limit = np.median(lengths)",
            "limit = vars(Clipped.combine).setdefault(len(lengths), np.median(lengths))",
        ),
        "the long ones are left out": ("limit / length", "0"),
        "each value is limited": (
            "total += one.gradients[name] * (1 if length <= limit else limit / length)",
            "total += np.clip(one.gradients[name], -limit, limit)",
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
    "trust.1": {
        "by one long vector": """
@ps.register
@dataclass(frozen=True)
class Clipped(ps.Aggregator):
    name = "clipped"

    def combine(self, contributions):
        flat = [np.concatenate([np.ravel(g) for g in one.gradients.values()]).astype(float) for one in contributions]
        norms = np.array([np.linalg.norm(v) for v in flat])
        middle = np.median(norms)
        scales = np.ones(len(norms))
        scales[norms > middle] = middle / norms[norms > middle]
        first = contributions[0].gradients
        return {
            name: np.asarray(
                np.mean([s * one.gradients[name] for s, one in zip(scales, contributions)], axis=0), dtype=g.dtype
            )
            for name, g in first.items()
        }
""",
        "the smaller of one and a quotient": """
@ps.register
@dataclass(frozen=True)
class Clipped(ps.Aggregator):
    name = "clipped"

    def combine(self, contributions):
        def length(gradients):
            return float(np.sqrt(sum(float(np.vdot(g, g)) for g in gradients.values())))

        lengths = sorted(length(one.gradients) for one in contributions)
        n = len(lengths)
        limit = (lengths[(n - 1) // 2] + lengths[n // 2]) / 2
        result = {name: np.zeros(g.shape, g.dtype) for name, g in contributions[0].gradients.items()}
        for one in contributions:
            own = length(one.gradients)
            for name in result:
                result[name] += (one.gradients[name] * (min(1.0, limit / own if own else 1.0) / n)).astype(
                    result[name].dtype
                )
        return result
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
