"""Test cases for "Round at random": for its questions, its exercises and a claim."""

from math import inf, nan

OUTCOMES = {
    "rounding.1": {
        "from one worker on": {"workers": 1},
        "from a few on, 2 to 10": {"workers": 2},
        "from more than 10 on": {"workers": 64},
        "never, however many they are": {"workers": inf},
        "none of these": {"workers": nan},
    },
    "rounding.2": {
        "more than twice as far": {"ratio": 4.0},
        "about as far": {"ratio": 1.05},
        "less than half as far": {"ratio": 0.3},
        "none of these": {"ratio": 1.6},
    },
}
"""Maps a question and one of its options to values for which that option is the right answer."""

TELLING = {
    "rounding.1": ["a bias, which no average", "divides its variance", "from 2 workers"],
    "rounding.2": ["acts like random rounding", "averages out"],
}
"""Maps a question to words that may not appear before its outcome, since they would give the answer away."""

BROKEN = {
    "rounding.1": {
        "to the nearest": ("np.floor(x / step + rng.random(x.shape))", "np.rint(x / step)"),
        "cut towards zero": ("np.floor(x / step + rng.random(x.shape))", "x / step + rng.random(x.shape)"),
        "always up": ("rng.random(x.shape)", "1"),
        "one draw for all": ("rng.random(x.shape)", "rng.random()"),
        "the same draws each time": ("rng.random", "np.random.default_rng(0).random"),
        "draws of its own": ("rng.random", "np.random.default_rng().random"),
        "long steps": ("/ self.steps", "/ 10"),
        "two bytes a value": ("np.int8", "np.int16"),
        "narrow draws": ("rng.random(x.shape)", "rng.uniform(0.1, 0.9, x.shape)"),
        "narrow draws, by a twentieth": ("rng.random(x.shape)", "rng.uniform(0.05, 0.95, x.shape)"),
        "a little too high": ("rng.random(x.shape)", "np.minimum(rng.random(x.shape) + 0.02, 0.999)"),
        "ten levels": ("rng.random(x.shape)", "(rng.integers(0, 10, x.shape) + 0.5) / 10"),
        "a smooth chance": (
            "np.floor(x / step + rng.random(x.shape))",
            "np.floor(x / step) + (rng.random(x.shape) < (lambda p: p * p * (3 - 2 * p))(x / step % 1))",
        ),
        "small ones to the nearest": (
            "np.floor(x / step + rng.random(x.shape))",
            "np.where(np.abs(x) < step, np.rint(x / step), np.floor(x / step + rng.random(x.shape)))",
        ),
        "negative ones to the nearest": (
            "np.floor(x / step + rng.random(x.shape))",
            "np.where(x < 0, np.rint(x / step), np.floor(x / step + rng.random(x.shape)))",
        ),
        "a draw for each row": ("rng.random(x.shape)", "rng.random(x.shape[:1] + (1,) * (x.ndim - 1))"),
        "a draw for each column": ("rng.random(x.shape)", "rng.random(x.shape[-1:])"),
        "a draw for two": (
            "rng.random(x.shape)",
            "np.repeat(rng.random(x.size // 2 + 1), 2)[: x.size].reshape(x.shape)",
        ),
        "a draw and its opposite": (
            "rng.random(x.shape)",
            "np.ravel([(u := rng.random(x.size // 2 + 1)), 1 - u], 'F')[: x.size].reshape(x.shape)",
        ),
        "what is left goes on to the next": (
            "np.floor(x / step + rng.random(x.shape))",
            "np.diff(np.floor(np.cumsum(x / step) + rng.random()), prepend=0).reshape(x.shape)",
        ),
    },
    "rounding.2": {
        "the border itself": ("np.floor(variance / bias) + 1", "np.ceil(variance / bias)"),
        "lengths, not squares": ("variance / bias", "np.sqrt(variance / bias)"),
        "the variance without 1 - p": ("p * (1 - p)", "p * p"),
        "never infinite": (" if bias else np.inf", " if bias else 1"),
        "bias of rounding down": ("np.rint(r)", "np.floor(r)"),
        "steps forgotten": ("r = x / step", "r = x"),
        "by drawing": (
            "(p * (1 - p)).sum()",
            "((np.floor(r + np.random.default_rng(0).random(r.size)) - r) ** 2).sum()",
        ),
        "as it was given": """
def workers_needed(x, step):
    rng, r = np.random.default_rng(0), x / step
    bias = ((np.rint(r) - r) ** 2).sum()
    for n in range(1, 500):
        mean = np.mean([np.floor(r + rng.random(r.size)) for _ in range(n)], axis=0)
        if ((mean - r) ** 2).sum() < bias:
            return n
    return np.inf
""",
        "at most 500": (
            "return np.floor(variance / bias) + 1 if bias",
            "return min(variance // bias + 1, 500) if bias",
        ),
        "far is never": (
            "return np.floor(variance / bias) + 1 if bias",
            "return variance // bias + 1 if 100 * bias > variance",
        ),
        "equal means two": (
            "np.floor(variance / bias) + 1 if bias",
            "(np.ceil(variance / bias) if variance > bias else 2.0) if bias",
        ),
        "written into x": ("r = x / step", "r = np.divide(x, step, out=x)"),
        "the mean of the shares": (
            "np.floor(variance / bias) + 1 if bias",
            "np.floor(np.mean((p * (1 - p))[p > 0] / np.minimum(p, 1 - p)[p > 0] ** 2)) + 1 if bias",
        ),
        "remembered by the step": """
known = {}


def workers_needed(x, step):
    if step not in known:
        p = x / step - np.floor(x / step)
        bias, variance = (np.minimum(p, 1 - p) ** 2).sum(), (p * (1 - p)).sum()
        known[step] = variance // bias + 1 if bias else np.inf
    return known[step]
""",
    },
}
"""Maps an exercise and an error to a piece of the solution and what replaces it, or to a whole wrong answer."""

RIGHT = {
    "rounding.1": {
        "up with a chance": """
@ps.register
@dataclass(frozen=True)
class Dither(Nearest):
    name = "dither"

    def encode(self, x, rng):
        step = np.abs(x).max(initial=0) / self.steps or x.dtype.type(1)
        r = x / step
        below = np.floor(r)
        codes = below + (rng.random(x.shape) < r - below)
        return {"codes": np.asarray(codes, np.int8), "step": np.asarray(step)}
""",
        "noise before the nearest": """
@ps.register
@dataclass(frozen=True)
class Dither(Nearest):
    name = "dither"

    def encode(self, x, rng):
        step = np.abs(x).max(initial=0) / self.steps or x.dtype.type(1)
        r = x / step
        codes = np.rint(r + rng.uniform(-0.5, 0.5, size=x.shape))
        return {"codes": np.asarray(codes, np.int8), "step": np.asarray(step)}
""",
        "from above": """
@ps.register
@dataclass(frozen=True)
class Dither(Nearest):
    name = "dither"

    def encode(self, x, rng):
        step = np.abs(x).max(initial=0) / self.steps or x.dtype.type(1)
        r = x / step
        codes = np.ceil(r - np.random.default_rng(rng.integers(2**63)).random(x.shape))
        return {"codes": np.asarray(codes, np.int8), "step": np.asarray(step)}
""",
    },
    "rounding.2": {
        "by counting": """
def workers_needed(x, step):
    up = np.mod(x / step, 1)
    nearest = np.minimum(up, 1 - up)
    if not nearest.any():
        return np.inf
    n = 1
    while np.sum(up - up**2) >= n * np.sum(nearest**2):
        n += 1
    return n
""",
        "value by value": """
def workers_needed(x, step):
    bias = variance = 0.0
    for r in (np.asarray(x) / step).ravel():
        below, near = r - np.floor(r), abs(r - round(r))
        bias += near**2
        variance += below * (1 - below) ** 2 + (1 - below) * below**2
    return float("inf") if bias == 0 else int(variance / bias + 1e-9) + 1
""",
    },
}
"""Maps an exercise to right answers that are written differently."""

MUTANT = (
    "random rounding goes up too often",
    "minips/stages/quantizers/integers.py",
    "noise += wide.type(0.5)",
    "noise += wide.type(2.0**13)",
)
"""A dither that rounds up too often."""
