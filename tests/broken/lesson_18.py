"""Lesson 18: what is wrong, the piece of the solution, and what stands there instead."""

BROKEN = {
    "18.1": {
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
    "18.2": {
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
