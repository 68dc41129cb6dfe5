"""Lesson 17: what is wrong, the piece of the solution, and what stands there instead."""

BROKEN = {
    "17.1": {
        "powers of two": ("1e6", "2**20"),
        "a gigabit of two": ("1e9", "2**30"),
        "bits": ("bits / 32", "8 * bits / 32"),
        "one latency": ("messages * latency_s", "latency_s"),
        "half the way": ("2 * (workers - 1)", "(workers - 1)"),
        "not quantized": ("* bits / 32", ""),
        "minips' own formula": (
            "return messages * latency_s + messages / workers * nbytes / bandwidth",
            "return ps.cost.ring_allreduce_s(workers, nbytes, bandwidth, latency_s)",
        ),
        "minips' own formula, by another name": (
            "return messages * latency_s + messages / workers * nbytes / bandwidth",
            "return vars(ps.cost)['ring_allreduce_s'](workers, nbytes, bandwidth, latency_s)",
        ),
    },
    "17.2": {
        "one size": ("(1_000, 30_000, 100_000)", "(30_000,)"),
        "nothing fixed": ("return line.fixed_s, line.each_s", "return 0.0, line.at(10_000) / 10_000"),
        "all of it fixed": ("return line.fixed_s, line.each_s", "return line.fixed_s, 0.0"),
        "encode alone": ("quantizer.decode(quantizer.encode(x, rng))", "quantizer.encode(x, rng)"),
        "milliseconds": ("line.fixed_s, line.each_s", "1e3 * line.fixed_s, 1e3 * line.each_s"),
        "the wrong way round": ("line.fixed_s, line.each_s", "line.each_s, line.fixed_s"),
    },
}
