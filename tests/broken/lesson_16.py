"""Lesson 16: what is wrong, the piece of the solution, and what stands there instead."""

BROKEN = {
    "16.1": {
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
    },
    "16.2": {
        "noise": ("np.sign(g)", "part.rng.normal(size=g.shape)"),
        "each its own side": ("part.truth(params)", "gradient"),
        "downhill": ("-1000", "1000"),
        "too gently": ("-1000", "-0.001"),
        "one tensor": ("-1000 * np.sign(g)", "-1000 * np.sign(g) if name == 'b' else g"),
        "not finite": ("-1000", "-np.inf"),
    },
}
