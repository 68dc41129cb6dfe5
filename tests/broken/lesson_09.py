"""Lesson 09: what is wrong, the piece of the solution, and what stands there instead."""

BROKEN = {
    "09.1": {
        "to the nearest": ("np.floor(x / step + rng.random(x.shape))", "np.rint(x / step)"),
        "cut towards zero": ("np.floor(x / step + rng.random(x.shape))", "x / step + rng.random(x.shape)"),
        "always up": ("rng.random(x.shape)", "1"),
        "one draw for all": ("rng.random(x.shape)", "rng.random()"),
        "the same draws each time": ("rng.random", "np.random.default_rng(0).random"),
        "draws of its own": ("rng.random", "np.random.default_rng().random"),
        "long steps": ("/ self.steps", "/ 10"),
        "two bytes a value": ("np.int8", "np.int16"),
    },
    "09.2": {
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
    },
}
