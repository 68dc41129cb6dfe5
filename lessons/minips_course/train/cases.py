"""Test cases for "Train in a minute": for its questions, its exercises and a claim."""

OUTCOMES = {
    "train.1": {
        "about one in ten": {"accuracy": 0.1},
        "about half": {"accuracy": 0.5},
        "more than nine in ten": {"accuracy": 0.96},
        "none of these": {"accuracy": 0.8},
    },
    "train.2": {
        "it falls below 50 %": {"accuracy": 12.0, "change": -84.0},
        "it falls by 10 to 40 percentage points": {"accuracy": 76.0, "change": -20.0},
        "it stays within 3 percentage points": {"accuracy": 96.0, "change": 0.1},
        "none of these": {"accuracy": 90.0, "change": -6.0},
    },
}
"""Maps a question and one of its options to values for which that option is the right answer."""

TELLING = {
    "train.1": ["a weight for each pixel", "most of them apart"],
    "train.2": ["is not dropped", "some steps late", "does not mind"],
}
"""Maps a question to words that may not appear before its outcome, since they would give the answer away."""

BROKEN = {
    "train.4": {
        "the numbers are cut off": (
            "np.round(x / unit)",
            "(x / unit)",
        ),
        "128 units": (
            "/ 127",
            "/ 128",
        ),
        "by the largest value, not magnitude": (
            "np.abs(x).max()",
            "x.max()",
        ),
        "zeros are divided by zero": (
            "if unit == 0:",
            "if unit < 0:",
        ),
        "sent as it is": (
            'return {"numbers": np.round(x / unit).astype(np.int8), "unit": np.float32([unit])}',
            'return {"numbers": x, "unit": np.float32([1])}',
        ),
        "two bytes for each value": (
            "np.round(x / unit).astype(np.int8)",
            "np.round(x / unit).astype(np.int16)",
        ),
        "the unit is not used": (
            'return parts["numbers"] * parts["unit"]',
            'return parts["numbers"].astype(np.float32)',
        ),
        "in double precision": (
            'return parts["numbers"] * parts["unit"]',
            'return parts["numbers"] * parts["unit"].astype(float)',
        ),
        "the unit for the lesson's gradients": (
            "unit = np.abs(x).max() / 127",
            "unit = np.float32(0.01)",
        ),
        "a unit for each row": (
            "unit = np.abs(x).max() / 127",
            "unit = np.abs(x).max(axis=-1, keepdims=True).max() / 100",
        ),
        "x becomes whole numbers": (
            'return {"numbers": np.round(x / unit).astype(np.int8), "unit": np.float32([unit])}',
            'x /= unit\n        return {"numbers": np.round(x).astype(np.int8), "unit": np.float32([unit])}',
        ),
        "rounded up": (
            "np.round(x / unit)",
            "np.ceil(x / unit)",
        ),
        "one dimension": (
            "np.round(x / unit).astype(np.int8)",
            "np.round(x / unit).astype(np.int8).ravel()",
        ),
        "minips' own": "OneByte = ps.Uniform",
        "what travels is kept at home": """
@ps.register
@dataclass(frozen=True)
class OneByte(ps.quantizers.Quantizer):
    name = "onebyte"

    kept = {}

    def encode(self, x, rng):
        unit = np.abs(x).max() / 127 or np.float32(1)
        numbers = np.round(x / unit).astype(np.int8)
        OneByte.kept[numbers.tobytes()] = x.copy()
        return {"numbers": numbers, "unit": np.float32([unit])}

    def decode(self, parts):
        return OneByte.kept[parts["numbers"].tobytes()]
""",
        "one buffer for all calls": """
buffer = np.zeros(10_000, np.int8)


@ps.register
@dataclass(frozen=True)
class OneByte(ps.quantizers.Quantizer):
    name = "onebyte"

    def encode(self, x, rng):
        unit = np.abs(x).max() / 127 or np.float32(1)
        numbers = np.round(x / unit).astype(np.int8)
        buffer[: x.size] = numbers.ravel()
        return {"numbers": buffer[: x.size].reshape(x.shape), "unit": np.float32([unit])}

    def decode(self, parts):
        return parts["numbers"] * parts["unit"]
""",
        "the first unit for all": """
units = {}


@ps.register
@dataclass(frozen=True)
class OneByte(ps.quantizers.Quantizer):
    name = "onebyte"

    def encode(self, x, rng):
        unit = units.setdefault("unit", np.abs(x).max() / 127 or np.float32(1))
        return {"numbers": np.round(x / unit).astype(np.int8), "unit": np.float32([unit])}

    def decode(self, parts):
        return parts["numbers"] * parts["unit"]
""",
    },
    "train.3": {
        "the whole run": (" / run.updates", ""),
        "what was wanted": ("run.updates", "(run.config.workers * run.config.steps)"),
        "received": ("run.bytes_sent", "run.bytes_received"),
        "a step of all the workers": ("run.updates", "run.config.steps"),
        "whole bytes": (" / run.updates", " // run.updates"),
        "rounded": ("run.bytes_sent / run.updates", "round(run.bytes_sent / run.updates)"),
        "text": ("run.bytes_sent / run.updates", "f'{run.bytes_sent / run.updates:.1f}'"),
        "always four workers": ("run.updates", "(4 * run.config.steps)"),
        "a run to its end": (
            "return run.bytes_sent / run.updates",
            "pushes = run.updates if run.stopped else run.config.workers * run.config.steps\n"
            "    return run.bytes_sent / pushes",
        ),
        "the bytes of one worker's pushes": ("/ run.updates", "/ run.updates / run.config.workers"),
        "what a worker sends in a step, one step of each": ("run.updates", "max(run.updates, run.config.steps)"),
        "both ways": ("run.bytes_sent", "(run.bytes_sent + run.bytes_received)"),
        "the parameters' bytes": ("run.bytes_sent / run.updates", "sum(p.nbytes for p in run.params.values())"),
        "to a tenth of a byte": ("run.bytes_sent / run.updates", "round(run.bytes_sent / run.updates, 1)"),
        "the first run's": """
known = []


def bytes_per_push(run):
    known.append(run.bytes_sent / run.updates)
    return known[0]
""",
        "remembered for a config": """
known = {}


def bytes_per_push(run):
    return known.setdefault(repr(run.config), run.bytes_sent / run.updates)
""",
    },
}
"""Maps an exercise and an error to a wrong answer, or to a piece of the solution and what replaces it."""

RIGHT = {
    "train.4": {
        "a unit of one for zeros": """
@ps.register
@dataclass(frozen=True)
class OneByte(ps.quantizers.Quantizer):
    name = "onebyte"

    def encode(self, x, rng):
        unit = np.float32(np.abs(x).max() / 127) or np.float32(1)
        return {"numbers": np.rint(x / unit).astype(np.int8), "unit": np.array(unit)}

    def decode(self, parts):
        return np.multiply(parts["numbers"], parts["unit"], dtype=np.float32)
""",
        "half a unit is added": """
@ps.register
@dataclass(frozen=True)
class OneByte(ps.quantizers.Quantizer):
    name = "onebyte"

    def encode(self, x, rng):
        largest = max(float(x.max()), -float(x.min()))
        scaled = x * (127 / largest) if largest else x
        numbers = np.where(scaled < 0, np.ceil(scaled - 0.5), np.floor(scaled + 0.5))
        return {"numbers": np.clip(numbers, -127, 127).astype("int8"), "unit": np.array([largest / 127], np.float32)}

    def decode(self, parts):
        return (parts["numbers"].astype(float) * float(parts["unit"][0])).astype(np.float32)
""",
    },
    "train.3": {
        "a lambda": "bytes_per_push = lambda run: np.divide(run.bytes_sent, run.updates)",
        "a sum of shares": """
def bytes_per_push(run):
    whole, rest = divmod(run.bytes_sent, run.updates)
    return whole + rest / run.updates
""",
    },
}
"""Maps an exercise and what is special to another right answer."""

MUTANT = (
    "the server steps uphill",
    "minips/stages/optimizers/base.py",
    "np.subtract(p, np.multiply(grads[name], lr, out=new[name]), out=new[name])",
    "np.add(p, np.multiply(grads[name], lr, out=new[name]), out=new[name])",
)
"""Gradient descent that adds the gradient."""
