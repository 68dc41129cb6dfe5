"""Test cases for "Where compression pays": for its questions, its exercises and a claim."""

from math import nan

OUTCOMES = {
    "pays.1": {
        "none of them": {"paying": 0},
        "one to three": {"paying": 2},
        "four to six": {"paying": 5},
        "all seven": {"paying": 7},
        "none of these": {"paying": nan},
    },
    "pays.2": {
        "less than 1.5 times as soon": {"times": 1.2},
        "1.5 to 8 times as soon": {"times": 4.4},
        "8 to 30 times as soon": {"times": 12.0},
        "30 times as soon, or more": {"times": 45.0},
        "none of these": {"times": nan},
    },
}
"""Maps a question and one of its options to values for which that option is the right answer."""

TELLING = {
    "pays.1": ["0.32 ns", "few passes", "none is"],
    "pays.2": ["no shorter than", "all but vanished", "4.4", "4.5"],
}
"""Maps a question to words that may not appear before its outcome, since they would give the answer away."""

BROKEN = {
    "pays.3": {
        "of one message": """
def pays_below(way, exact, workers, latency_s):
    return 8 * (exact.pushed - way.pushed) / (way.encode + way.decode - exact.encode - exact.decode)
""",
        "bytes for bits": ("one.steps * 8 * in_turn", "one.steps * in_turn"),
        "of a step, not of a training": ("one.steps * ", ""),
        "steps of the links alone": (
            "fixed.append(one.steps * (processors + 2 * latency_s))",
            "fixed.append(processors)",
        ),
        "no latency": (" + 2 * latency_s", ""),
        "one latency": ("2 * latency_s", "latency_s"),
        "a latency for each worker": ("2 * latency_s", "2 * workers * latency_s"),
        "no gradient": ("one.gradient + one.encode", "one.encode"),
        "decoded side by side": ("workers * one.decode", "one.decode"),
        "encoded one after another": ("one.gradient + one.encode", "one.gradient + workers * one.encode"),
        "an answer for each worker": (" + one.answer", " + workers * one.answer"),
        "no answer": (" + one.answer", ""),
        "nothing comes back": (
            "max(workers * one.pushed + one.pulled, one.pushed + workers * one.pulled)",
            "workers * one.pushed",
        ),
        "both ways in turn": (
            "max(workers * one.pushed + one.pulled, one.pushed + workers * one.pulled)",
            "workers * (one.pushed + one.pulled)",
        ),
        "pushes are the larger part": (
            "max(workers * one.pushed + one.pulled, one.pushed + workers * one.pulled)",
            "workers * one.pushed + one.pulled",
        ),
        "answers are the larger part": (
            "max(workers * one.pushed + one.pulled, one.pushed + workers * one.pulled)",
            "one.pushed + workers * one.pulled",
        ),
        "never is not said": ("    if saved <= 0:\n        return 0.0\n", ""),
        "always is not said": ('saved / added if added > 0 else float("inf")', "saved / added"),
        "always is never": ('float("inf")', "0.0"),
        "for the table's four workers": ("    fixed, bits", "    workers = 4\n    fixed, bits"),
        "for the table's latency": ("    fixed, bits", "    latency_s = 1e-4\n    fixed, bits"),
        "up to 16 workers": ("    fixed, bits", "    workers = min(workers, 16)\n    fixed, bits"),
        "whole steps": ("one.steps", "int(one.steps)"),
        "the first gradient": (
            "    fixed, bits",
            "    way = way._replace(gradient=vars(pays_below).setdefault('first', way.gradient))\n    fixed, bits",
        ),
        "the course's own seconds": """
def pays_below(way, exact, workers, latency_s):
    from minips_course.pays.timing import step_s
    low, high = 1.0, 1e15
    for _ in range(200):
        rate = (low * high) ** 0.5
        sooner = way.steps * sum(step_s(way, rate, workers, latency_s)) < exact.steps * sum(
            step_s(exact, rate, workers, latency_s)
        )
        low, high = (rate, high) if sooner else (low, rate)
    return 0.0 if low < 2 else float("inf") if high > 1e14 else low
""",
    },
    "pays.2": {
        "numpy's cast": ('np.asarray(x, "f4").view("u4")', 'np.asarray(x, "f2").astype("f4").view("u4")'),
        "the lower half": ("bits >> 16", "bits & 0xFFFF"),
        "without the sign": ("bits >> 16", "bits >> 16 & 0x7FFF"),
        "a bit too few": ("bits >> 16", "bits >> 17 << 1"),
        "shifted too little": ("<< 16", "<< 15"),
        "value by value": (
            'np.asarray(bits >> 16, "u2")',
            'np.array([bit >> 16 for bit in bits.reshape(-1).tolist()], "u2").reshape(bits.shape)',
        ),
        "32 bits": ('np.asarray(bits >> 16, "u2")', 'np.asarray(bits >> 16, "u4")'),
        "float32 whatever came": ('"like": shape_tag(x)', '"like": shape_tag(np.asarray(x, "f4"))'),
        "no shape": ('part(parts, "top", np.uint16, x.shape)', 'part(parts, "top").astype("u2")[:1]'),
        "minips' own": """
@ps.register
@dataclass(frozen=True)
class Half(ps.BFloat16):
    name = "half"
""",
        "minips' own, inside": """
@ps.register
@dataclass(frozen=True)
class Half(ps.Quantizer):
    name = "half"
    def encode(self, x, rng):
        return ps.BFloat16().encode(x, rng)

    def decode(self, parts):
        return ps.BFloat16().decode(parts)
""",
        "float16 of a share of the largest": """
@ps.register
@dataclass(frozen=True)
class Half(ps.Quantizer):
    name = "half"
    def encode(self, x, rng):
        x = np.asarray(x)
        power = int(np.frexp(np.abs(x).max(initial=0))[1])
        return {"top": np.ldexp(x, -power).astype("f2"), "power": np.array(power, "i2"), "like": shape_tag(x)}

    def decode(self, parts):
        x = empty_for(parts)
        x[...] = np.ldexp(part(parts, "top", np.float16, x.shape).astype(float), int(part(parts, "power", np.int16)))
        return x
""",
        "zero for a single number": ("        x[...] = (", "        x[...] = (x.ndim > 0) * ("),
        "in the order of memory": (
            'np.asarray(x, "f4").view("u4")',
            'np.asarray(x, "f4").ravel(order="K").reshape(x.shape).view("u4")',
        ),
        "tiny ones are zero": (
            'np.asarray(x, "f4").view("u4")',
            'np.where(np.abs(x) < 1e-20, 0, x).astype("f4").view("u4")',
        ),
        "huge ones are cut": ('np.asarray(x, "f4").view("u4")', 'np.clip(x, -1e20, 1e20).astype("f4").view("u4")'),
        "of the largest array, 15 bits": (
            'np.asarray(bits >> 16, "u2")',
            'np.asarray(bits >> 16 & (0xFFFE if x.size > 1500 else 0xFFFF), "u2")',
        ),
        "sign, exponent and four bits": ("bits >> 16", "bits >> 16 & 0xFFF8"),
        "by powers of two": """
@ps.register
@dataclass(frozen=True)
class Half(ps.Quantizer):
    name = "half"
    def encode(self, x, rng):
        share, power = np.frexp(np.asarray(x, float))
        codes = np.round(share * 128).astype("i2") * 256 + power.astype("i2")
        return {"top": codes, "like": shape_tag(x)}

    def decode(self, parts):
        x = empty_for(parts)
        codes = part(parts, "top", np.int16, x.shape)
        power = (codes + 128) % 256 - 128
        x[...] = np.ldexp((codes - power) / 256 / 128, power)
        return x
""",
    },
}
"""Maps an exercise and an error to a piece of the solution and the wrong piece that replaces it, or a source."""

RIGHT = {
    "pays.3": {
        "two lines": """
def pays_below(way, exact, workers, latency_s):
    def line(one):
        at_once = one.gradient + one.encode + one.answer
        waits = at_once + workers * one.decode + latency_s + latency_s
        larger, smaller = max(one.pushed, one.pulled), min(one.pushed, one.pulled)
        return one.steps * waits, one.steps * (workers * larger + smaller) * 8

    (a, b), (a_exact, b_exact) = line(way), line(exact)
    if b >= b_exact:
        return 0
    if a <= a_exact:
        return np.inf
    return (b_exact - b) / (a - a_exact)
""",
        "halving": """
def pays_below(way, exact, workers, latency_s):
    def seconds(one, byte_s):
        links = max(workers * one.pushed + one.pulled, one.pushed + workers * one.pulled) * byte_s
        step = one.gradient + one.encode + workers * one.decode + one.answer + 2 * latency_s + links
        return one.steps * step

    low, high = 1e-18, 1e6  # seconds of a byte
    if seconds(way, high) >= seconds(exact, high):
        return 0.0
    if seconds(way, low) < seconds(exact, low):
        return float("inf")
    for _ in range(200):
        half = (low * high) ** 0.5
        low, high = (low, half) if seconds(way, half) < seconds(exact, half) else (half, high)
    return 8 / high
""",
    },
    "pays.2": {
        "every second 16 bits": """
import sys

@ps.register
@dataclass(frozen=True)
class Half(ps.Quantizer):
    name = "half"
    def encode(self, x, rng):
        x32 = np.ascontiguousarray(x, "f4").reshape(np.shape(x))
        upper = 1 if sys.byteorder == "little" else 0
        return {"top": x32.reshape(-1).view("u2")[upper::2].reshape(x32.shape).copy(), "like": shape_tag(x)}

    def decode(self, parts):
        x = empty_for(parts)
        top = part(parts, "top", np.uint16, x.shape)
        wide = np.zeros((x.size, 2), "u2")
        wide[:, 1 if sys.byteorder == "little" else 0] = top.reshape(-1)
        x[...] = wide.view("f4").reshape(x.shape)
        return x
""",
        "rounded to the nearest": """
@ps.register
@dataclass(frozen=True)
class Half(ps.Quantizer):
    name = "half"
    def encode(self, x, rng):
        bits = np.asarray(x, "f4").view("u4")
        bits = bits + np.asarray(0x7FFF, "u4") + (bits >> 16 & 1)
        return {"top": np.asarray(bits >> 16, "u2"), "like": shape_tag(x)}

    def decode(self, parts):
        x = empty_for(parts)
        top = part(parts, "top", np.uint16, x.shape)
        x[...] = np.left_shift(top, 16, dtype="u4").view("f4")
        return x
""",
    },
}
"""Maps an exercise and a way to write a right answer to its source."""

MUTANT = (
    "the parameters on their way back have the bytes of a push",
    "minips/cost/formulas.py",
    "pulled = nbytes if pulled_nbytes is None else pulled_nbytes",
    "pulled = nbytes",
)
"""A formula for a step that uses the bytes of a push as the bytes of the answer, too."""
