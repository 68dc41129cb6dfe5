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
    },
}
"""Maps an exercise and an error to a piece of the solution and the wrong piece that replaces it."""

MUTANT = (
    "the parameters on their way back have the bytes of a push",
    "minips/cost/formulas.py",
    "pulled = nbytes if pulled_nbytes is None else pulled_nbytes",
    "pulled = nbytes",
)
"""A formula for a step that uses the bytes of a push as the bytes of the answer, too."""
