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
    "bits.3": {
        "all rows at one server": ("int(np.bincount(homes, minlength=servers).max())", "len(once)"),
        "repeats count": ("np.unique(np.asarray(ids, int))", "np.asarray(ids, int)"),
        "ranges alone": ('placement == "modulo"', "False"),
        "modulo alone": ('placement == "modulo"', "True"),
        "the two are swapped": ('placement == "modulo"', 'placement == "ranges"'),
        "a range includes its end": ('side="right"', 'side="left"'),
        "ranges of the same length": (
            "ends = [(server + 1) * rows // servers for server in range(servers)]\n"
            '        homes = np.searchsorted(ends, once, side="right")',
            "homes = np.minimum(once // max(rows // servers, 1), servers - 1)",
        ),
        "ranges rounded up": ("(server + 1) * rows // servers", "-(-(server + 1) * rows // servers)"),
        "by the share of the row": (
            "ends = [(server + 1) * rows // servers for server in range(servers)]\n"
            '        homes = np.searchsorted(ends, once, side="right")',
            "homes = once * servers // rows",
        ),
        "the average server": (".max())", ".mean())"),
        "the least busy server": (".max())", ".min())"),
        "the busiest server's number": (".max())", ".argmax())"),
        "four servers": ("once % servers", "once % 4"),
        "no empty batch": (", minlength=servers", ""),
        "the rows that the batch spans": (
            "np.unique(np.asarray(ids, int))",
            "np.arange(min(ids, default=0), max(ids, default=-1) + 1)",
        ),
        "an equal share": ("int(np.bincount(homes, minlength=servers).max())", "-(-len(once) // servers)"),
    },
}
"""Maps an exercise and an error to a piece of the solution and what replaces it, or to a whole wrong answer."""

RIGHT = {
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
    "bits.3": {
        "server by server": """
def busiest(ids, rows, servers, placement):
    once = {int(row) for row in ids}
    counts = []
    for s in range(servers):
        low, high = s * rows // servers, (s + 1) * rows // servers
        if placement == "ranges":
            counts.append(sum(low <= row < high for row in once))
        else:
            counts.append(sum(row % servers == s for row in once))
    return max(counts)
""",
        "a mask of the table": """
def busiest(ids, rows, servers, placement):
    mask = np.zeros(rows, int)
    mask[ids] = 1
    if placement == "modulo":
        return max(mask[s::servers].sum() for s in range(servers))
    ends = [s * rows // servers for s in range(servers + 1)]
    return max(mask[low:high].sum() for low, high in zip(ends, ends[1:]))
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
