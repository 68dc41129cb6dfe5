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
    "pays.1": {
        "powers of two": ("1e6", "2**20"),
        "a gigabit of two": ("1e9", "2**30"),
        "bytes for bits": ("8 * nbytes", "nbytes"),
        "one latency": (
            "messages * (latency_s + 8 * nbytes / bandwidth)",
            "messages * 8 * nbytes / bandwidth + latency_s",
        ),
        "half the way": ("2 * (workers - 1)", "(workers - 1)"),
        "not quantized": ("* bits / 32", ""),
        "the whole gradient in each message": ("/ workers + extra", "+ extra"),
        "the extra bytes once": ("/ workers + extra", "/ workers + extra / messages"),
        "the extra bytes quantized": ("* bits / 32 / workers + extra", "/ workers * bits / 32 + extra * bits / 32"),
        "no extra bytes": (" + extra", ""),
        "minips' own formula": (
            "return messages * (latency_s + 8 * nbytes / bandwidth)",
            "return ps.cost.ring_allreduce_s(workers, workers * nbytes, bandwidth / 8, latency_s)",
        ),
        "minips' own formula, by another name": (
            "return messages * (latency_s + 8 * nbytes / bandwidth)",
            "return vars(ps.cost)['ring_allreduce_s'](workers, workers * nbytes, bandwidth / 8, latency_s)",
        ),
        "for the lecture's eight workers": ("workers - 1", "8 - 1"),
        "one worker waits, too": ("2 * (workers - 1)", "2 * max(workers - 1, 1)"),
        "whole bytes": ("/ workers + extra", "// workers + extra"),
        "at most 16 bits": ("* bits / 32", "* min(bits, 16) / 32"),
        "up to 64 workers": ("    nbytes", "    workers = min(workers, 64)\n    nbytes"),
        "at least a megabyte": ("megabytes * 1e6", "max(megabytes, 1) * 1e6"),
        "the first ring's latency": (
            "    nbytes",
            "    latency_s = vars(ring_seconds).setdefault(workers, latency_s)\n    nbytes",
        ),
        "the worker's own piece, too": ("2 * (workers - 1)", "2 * workers"),
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
    "pays.1": {
        "in bits, by the piece": """
def ring_seconds(workers, megabytes, bits, gigabits, latency_s, extra):
    values = megabytes * 10**6 / 4
    piece_bits = values * bits / workers + 8 * extra
    one = piece_bits / (gigabits * 10**9) + latency_s
    return one * (2 * workers - 2)
""",
        "the parts apart": """
def ring_seconds(workers, megabytes, bits, gigabits, latency_s, extra):
    hops = 2 * (workers - 1)
    byte_s = 8e-9 / gigabits
    gradient = 1e6 * megabytes * (bits / 32)
    return hops * latency_s + hops / workers * gradient * byte_s + hops * extra * byte_s
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
