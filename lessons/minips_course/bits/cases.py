"""Test cases for "Send fewer bits": for its questions, its exercises and a claim."""

from math import nan

OUTCOMES = {
    "bits.1": {"expected": {"ratio": 9.04}, "otherwise": {"ratio": 26.9}},
    "bits.2": {
        "fewer than half as many": {"times": 0.4},
        "no more: half as many to as many": {"times": 0.73},
        "more: up to ten times as many": {"times": 1.44},
        "about 32 times as many, or it never gets there": {"times": 32.0},
        "none of these": {"times": nan},
    },
}
"""Maps a question and one of its options to values for which that option is the right answer."""

TELLING = {
    "bits.1": ["9 times", "nine times", "ten times", "10 times"],
    "bits.2": ["no more steps", "as many steps", "as soon"],
}
"""Maps a question to words that may not appear before its outcome, since they would give the answer away."""

BROKEN = {
    "bits.1": {
        "the values alone": ("(4 + index)", "4"),
        "indices of four bytes": ("1 if size <= 256 else 2 if size <= 65536 else 4", "4"),
        "a byte holds 255 indices": ("size <= 256", "size < 256"),
        "two bytes hold 65535": ("65536", "65535"),
        "all the indices": ("k * (4 + index)", "4 * k + index * size"),
        "all of them need no indices": ("return k * (4 + index)", "return k * (4 + index * (k < size or k == 1))"),
        "three bytes": ("else 4\n", "else 3 if size <= 2**24 else 4\n"),
        "eight bytes for a million": ("else 4\n", "else 4 if size < 10**6 else 8\n"),
        "the bytes of the size": (
            "1 if size <= 256 else 2 if size <= 65536 else 4",
            "np.min_scalar_type(size).itemsize",
        ),
        "at least one": ("k * (4 + index)", "max(k, 1) * (4 + index)"),
        "by making them": """
def topk_bytes(size, k):
    parts = ps.TopK(k / size).encode(np.zeros(size, "f4"), None)
    return sum(part.nbytes for part in parts.values())
""",
        "indices of the kept ones": ("1 if size <= 256 else 2 if size <= 65536", "1 if k <= 256 else 2 if k <= 65536"),
    },
    "bits.2": {
        "two bytes a value": ('astype("i1")', 'astype("i2")'),
        "128 steps do not fit": ("/ 127", "/ 128"),
        "too few steps": ("/ 127", "/ 50"),
        "cut towards zero": ("np.rint(x / step)", "(x / step)"),
        "zeros have no step": (", 1e-30)", ", 0.0)"),
        "one step for all tensors": ("np.abs(x).max(initial=0)", "max(np.abs(y).max() for y in tensors.values())"),
        "codes that are never multiplied": ('* parts[f"{name} step"]', ""),
        "always float32": ("astype(x.dtype)", 'astype("f4")'),
        "looks at what it may not know": """
class Server(Server):
    @staticmethod
    def encode(tensors):
        return {name: x.astype("i1") for name, x in tensors.items()}

    @staticmethod
    def decode(parts, like):
        return {name: x.copy() for name, x in like.items()}
""",
        "written into like": """
class Server(Server):
    @staticmethod
    def encode(tensors):
        parts = {}
        for name, x in tensors.items():
            step = max(float(np.abs(x).max(initial=0)), 1e-30) / 127
            parts[f"{name} codes"] = np.rint(x / step).astype("i1")
            parts[f"{name} step"] = np.float32(step)
        return parts

    @staticmethod
    def decode(parts, like):
        for name, x in like.items():
            x[...] = parts[f"{name} codes"] * parts[f"{name} step"]
        return like
""",
        "names that it knows": """
class Server(Server):
    @staticmethod
    def encode(tensors):
        parts = {}
        for name in {"U", "V", "W", "b", "c", "w"} & {*tensors}:
            step = max(float(np.abs(tensors[name]).max(initial=0)), 1e-30) / 127
            parts[f"{name} codes"] = np.rint(tensors[name] / step).astype("i1")
            parts[f"{name} step"] = np.float32(step)
        return parts

    @staticmethod
    def decode(parts, like):
        return {name: (parts[f"{name} codes"] * parts[f"{name} step"]).astype(x.dtype) for name, x in like.items()}
""",
        "by their order": """
class Server(Server):
    @staticmethod
    def encode(tensors):
        parts = {}
        for i, x in enumerate(tensors.values()):
            step = max(float(np.abs(x).max(initial=0)), 1e-30) / 127
            parts[f"codes {i}"] = np.rint(x / step).astype("i1")
            parts[f"step {i}"] = np.float32(step)
        return parts

    @staticmethod
    def decode(parts, like):
        return {
            name: (parts[f"codes {i}"] * parts[f"step {i}"]).astype(x.dtype).reshape(x.shape)
            for i, (name, x) in enumerate(like.items())
        }
""",
        "steps kept in the class": """
class Server(Server):
    kept = {}

    @staticmethod
    def encode(tensors):
        steps = {name: max(float(np.abs(x).max(initial=0)), 1e-30) / 127 for name, x in tensors.items()}
        Server.kept |= steps
        return {name: np.rint(x / steps[name]).astype("i1") for name, x in tensors.items()}

    @staticmethod
    def decode(parts, like):
        return {name: (parts[name] * np.float32(Server.kept[name])).astype(x.dtype) for name, x in like.items()}
""",
        "one buffer given out twice": """
class Server(Server):
    buffers = {}

    @staticmethod
    def encode(tensors):
        parts = {}
        for name, x in tensors.items():
            step = max(float(np.abs(x).max(initial=0)), 1e-30) / 127
            codes = Server.buffers.setdefault((name, x.shape), np.zeros(x.shape, "i1"))
            codes[...] = np.rint(x / step)
            parts[f"{name} codes"] = codes
            parts[f"{name} step"] = np.float32(step)
        return parts

    @staticmethod
    def decode(parts, like):
        return {name: (parts[f"{name} codes"] * parts[f"{name} step"]).astype(x.dtype) for name, x in like.items()}
""",
        "the largest value, not magnitude": ("np.abs(x).max(initial=0)", "x.max(initial=0)"),
        "half-precision steps": ("np.float32(step)", "np.float16(step)"),
        "never a small step": ("1e-30", "1e-6"),
        "a step for the shown one": ("np.abs(x).max(initial=0)", "max(np.abs(x).max(initial=0), 0.01)"),
        "written into the gradient": ("np.rint(x / step)", "np.rint(np.divide(x, step, out=x))"),
    },
}
"""Maps an exercise and an error to a piece of the solution and what replaces it, or to a whole wrong answer."""

RIGHT = {
    "bits.1": {
        "by the type": """
def topk_bytes(size, k):
    return k * np.min_scalar_type(size - 1).itemsize + k * np.dtype("f4").itemsize
""",
        "by powers": """
def topk_bytes(size, k):
    width = 1
    while size > 256**width:
        width *= 2
    return (width + 4) * k
""",
    },
    "bits.2": {
        "from the least to the largest": """
class Server(Server):
    @staticmethod
    def encode(tensors):
        parts = {}
        for name, x in tensors.items():
            low = x.min()
            step = (x.max() - low) / 255 or x.dtype.type(1)
            parts[name] = np.round((x - low) / step).astype(np.uint8)
            parts[name + " grid"] = np.array([low, step])
        return parts

    @staticmethod
    def decode(parts, like):
        back = {}
        for name, x in like.items():
            low, step = parts[name + " grid"]
            back[name] = np.asarray(low + step * parts[name].astype(float)).astype(x.dtype)
        return back
""",
        "shares of the largest": """
class Server(Server):
    @staticmethod
    def encode(tensors):
        largest = {name: np.abs(x).max() or 1 for name, x in tensors.items()}
        codes = {f"{name}.int8": np.round(x / largest[name] * 127).astype(np.int8) for name, x in tensors.items()}
        return {**codes, **{f"{name}.largest": np.asarray(largest[name], "f8") for name in tensors}}

    @staticmethod
    def decode(parts, like):
        back = {}
        for name in like:
            flat = parts[f"{name}.int8"].ravel().astype("f8") / 127 * parts[f"{name}.largest"]
            back[name] = flat.astype(like[name].dtype).reshape(like[name].shape)
        return back
""",
    },
}
"""Maps an exercise to right answers that are written differently."""

MUTANT = (
    "the scale of the signs is half of the mean magnitude",
    "minips/stages/quantizers/signs.py",
    "scale = total / max(x.size, 1)",
    "scale = total / max(x.size, 1) / 2",
)
"""A sign quantizer with half the right scale."""
