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
        "two bytes a value": ('astype("i1")', 'astype("i2")'),
        "128 steps do not fit": ("/ 127", "/ 128"),
        "too few steps": ("/ 127", "/ 50"),
        "cut towards zero": ("np.rint(x / step)", "(x / step)"),
        "zeros have no step": (", 1e-30)", ", 0.0)"),
        "one step for all tensors": ("np.abs(x).max(initial=0)", "max(np.abs(y).max() for y in tensors.values())"),
        "codes that are never multiplied": ('* parts[f"{name} step"]', ""),
        "always float32": ("astype(x.dtype)", 'astype("f4")'),
    },
}
