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
    "rounding.3": {
        "as it was given": """
from minips.stages.quantizers import base


@ps.register
@dataclass(frozen=True)
class Blockwise(stages.Whole):
    name = "blockwise"
    block: int = 64

    def encode(self, x, rng):
        step = np.abs(x).max(initial=0) / self.levels
        codes = np.asarray(np.rint(x / (step or 1)), np.int8)
        return {"codes": codes, "steps": np.asarray(step, x.dtype)}

    def decode(self, parts):
        return np.asarray(base.part(parts, "codes") * base.part(parts, "steps"))
""",
        "at random, in one block": """
from minips.stages.quantizers import base


@ps.register
@dataclass(frozen=True)
class Blockwise(stages.Whole):
    name = "blockwise"
    block: int = 64

    def encode(self, x, rng):
        step = np.abs(x).max(initial=0) / self.levels
        codes = np.asarray(np.floor(x / (step or 1) + rng.random(x.shape)), np.int8)
        return {"codes": codes, "steps": np.asarray(step, x.dtype)}

    def decode(self, parts):
        return np.asarray(base.part(parts, "codes") * base.part(parts, "steps"))
""",
        "the block of the lesson": (
            "rows = np.zeros((-(-x.size // self.block), self.block)",
            "rows = np.zeros((-(-x.size // 64), 64)",
        ),
        "the levels of the lesson": ("/ self.levels", "/ 3"),
        "a block for each row of the array": (
            "        rows = np.zeros((-(-x.size // self.block), self.block), x.dtype)\n"
            "        rows.flat[: x.size] = x.reshape(-1)\n",
            "        rows = x.reshape(len(x) if x.ndim > 1 else 1, -1) if x.size else x.reshape(0, 1)\n",
        ),
        "blocks across": (
            "        rows.flat[: x.size] = x.reshape(-1)\n",
            "        rows.T.flat[: x.size] = x.reshape(-1)\n",
        ),
        "the largest of all": (
            "steps = np.abs(rows).max(axis=1, keepdims=True)",
            "steps = np.full((len(rows), 1), np.abs(x).max(initial=0))",
        ),
        "the largest, not the largest magnitude": ("np.abs(rows).max(", "np.maximum(rows, 0).max("),
        "the length of a block": (
            "np.abs(rows).max(axis=1, keepdims=True)",
            "np.sqrt((rows.astype(float) ** 2).sum(axis=1, keepdims=True)).astype(x.dtype)",
        ),
        "to the nearest": ("np.floor(r + rng.random(r.shape))", "np.rint(r)"),
        "cut towards zero": ("np.floor(r + rng.random(r.shape))", "r + rng.random(r.shape)"),
        "always up": ("rng.random(r.shape)", "1"),
        "one draw for all": ("rng.random(r.shape)", "rng.random()"),
        "a draw for each block": ("rng.random(r.shape)", "rng.random((len(r), 1))"),
        "a draw for each place": ("rng.random(r.shape)", "rng.random(r.shape[1])"),
        "a draw for two": (
            "rng.random(r.shape)",
            "np.repeat(rng.random(r.size // 2 + 1), 2)[: r.size].reshape(r.shape)",
        ),
        "a draw and its opposite": (
            "rng.random(r.shape)",
            "np.ravel([(u := rng.random(r.size // 2 + 1)), 1 - u], 'F')[: r.size].reshape(r.shape)",
        ),
        "the same draws each time": ("rng.random", "np.random.default_rng(0).random"),
        "draws of its own": ("rng.random", "np.random.default_rng().random"),
        "narrow draws": ("rng.random(r.shape)", "rng.uniform(0.1, 0.9, r.shape)"),
        "narrow draws, by a twentieth": ("rng.random(r.shape)", "rng.uniform(0.05, 0.95, r.shape)"),
        "a little too high": ("rng.random(r.shape)", "np.minimum(rng.random(r.shape) + 0.02, 0.999)"),
        "a smooth chance": (
            "np.floor(r + rng.random(r.shape))",
            "np.floor(r) + (rng.random(r.shape) < (lambda p: p * p * (3 - 2 * p))(r % 1))",
        ),
        "small ones to the nearest": (
            "np.floor(r + rng.random(r.shape))",
            "np.where(np.abs(r) < 1, np.rint(r), np.floor(r + rng.random(r.shape)))",
        ),
        "negative ones to the nearest": (
            "np.floor(r + rng.random(r.shape))",
            "np.where(r < 0, np.rint(r), np.floor(r + rng.random(r.shape)))",
        ),
        "two bytes a value": ("np.int8", "np.int16"),
        "a step for each value": ('"steps": steps', '"steps": np.repeat(steps, self.block, axis=1)'),
        "the shape of the sender": ("-(-x.size // self.block), self.block", "x.size // self.block, self.block"),
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
    "rounding.3": {
        "up with a chance, block by block": """
from minips.stages.quantizers import base


@ps.register
@dataclass(frozen=True)
class Blockwise(stages.Whole):
    name = "blockwise"
    block: int = 64

    def encode(self, x, rng):
        flat, codes, steps = x.reshape(-1), [], []
        for start in range(0, x.size, self.block):
            some = flat[start : start + self.block]
            step = np.abs(some).max() / self.levels
            r = some / step if step else some
            below = np.floor(r)
            codes.append(np.resize(below + (rng.random(some.size) < r - below), self.block))
            steps.append(step)
        rows = np.array(codes, np.int8).reshape(-1, self.block)
        return {"codes": rows, "steps": np.array(steps, x.dtype), "like": base.shape_tag(x)}

    def decode(self, parts):
        y, codes, steps = base.empty_for(parts), base.part(parts, "codes"), base.part(parts, "steps")
        if steps.ndim != 1 or codes.ndim != 2 or codes.size < y.size:
            raise ValueError("These are not blocks.")
        y.reshape(-1)[...] = (codes * steps[:, None]).reshape(-1)[: y.size]
        return y
""",
        "noise before the nearest": """
from minips.stages.quantizers import base


@ps.register
@dataclass(frozen=True)
class Blockwise(stages.Whole):
    name = "blockwise"
    block: int = 64

    def encode(self, x, rng):
        rows = np.pad(x.reshape(-1), (0, -x.size % self.block)).reshape(-1, self.block)
        unit = np.abs(rows).max(axis=1, initial=0)[:, None] / self.levels
        r = np.divide(rows, unit, out=np.zeros_like(rows), where=unit > 0)
        codes = np.rint(r + rng.uniform(-0.5, 0.5, size=rows.shape))
        return {"like": base.shape_tag(x), "unit": unit, "q": np.asarray(codes, np.int8)}

    def decode(self, parts):
        y = base.empty_for(parts)
        y.flat[:] = (base.part(parts, "q") * base.part(parts, "unit")).flat[: y.size]
        return y
""",
        "from above, with draws in turn": ("np.floor(r + rng.random(r.shape))", "np.ceil(r - rng.random(r.shape))"),
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
