"""Lesson 08: what is wrong, the piece of the solution, and what stands there instead."""

BROKEN = {
    "08.1": {
        "the values alone": ("(4 + place)", "4"),
        "places of four bytes": ("1 if size <= 256 else 2 if size <= 65536 else 4", "4"),
        "a byte holds 255 places": ("size <= 256", "size < 256"),
        "two bytes hold 65535": ("65536", "65535"),
        "all the places": ("k * (4 + place)", "4 * k + place * size"),
    },
    "08.2": {
        "to the nearest": ("np.floor(x / step + rng.random(x.shape))", "np.rint(x / step)"),
        "cut towards zero": ("np.floor(x / step + rng.random(x.shape))", "x / step + rng.random(x.shape)"),
        "always up": ("rng.random(x.shape)", "1"),
        "one draw for all": ("rng.random(x.shape)", "rng.random()"),
        "the same draws each time": ("rng.random", "np.random.default_rng(0).random"),
        "draws of its own": ("rng.random", "np.random.default_rng().random"),
        "long steps": ("/ 100", "/ 10"),
        "two bytes a value": ("np.int8", "np.int16"),
    },
    "08.3": {
        "no mending": ("np.min_scalar_type(x.size)", "np.uint16"),
        "a byte more than enough": ("np.min_scalar_type(x.size)", "np.int64"),
        "places below zero": ("np.min_scalar_type(x.size)", "np.int16"),
        "the largest, not in magnitude": ("np.abs(flat)", "flat"),
        "one too few": ("x.size - k :", "x.size - k + 1 :"),
    },
}
