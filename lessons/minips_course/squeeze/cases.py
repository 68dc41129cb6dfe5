"""Test cases for "Squeeze bytes": for its questions, its exercises and a claim."""

OUTCOMES = {
    "squeeze.1": {
        "about half": {"left": 0.5},
        "about nine tenths": {"left": 0.93},
        "all of them": {"left": 1.004},
        "none of these": {"left": 0.1},
    },
    "squeeze.2": {"expected": {"best": 370.0}, "otherwise": {"best": 17.0}},
}
"""Maps a question and one of its options to values for which that option is the right answer."""

TELLING = {
    "squeeze.1": ["as good as random", "mantissas", "nothing to gain"],
}
"""Maps a question to words that may not appear before its outcome, since they would give the answer away."""

BROKEN = {
    "squeeze.1": {
        "bytes per second": ("8 * (before - after)", "(before - after)"),
        "what is left": ("(before - after)", "after"),
        "all of it": ("(before - after)", "before"),
        "negative": ("    if after >= before:\n        return 0.0\n", ""),
        "seconds are not 0": ('/ seconds if seconds else float("inf")', "/ seconds"),
        "upside down": ("8 * (before - after) / seconds", "seconds / (8 * (before - after))"),
        "always": ("8 * (before - after) / seconds if seconds else ", ""),
        "as it was given": ("compress + workers * decompress", "compress + decompress"),
        "four workers": ("workers * decompress", "4 * decompress"),
        "each compresses in turn": ("compress + workers * decompress", "workers * (compress + decompress)"),
        "the workers' part": ("compress + workers * decompress", "workers * compress + decompress"),
        "the server's line": ("8 * (before", "8 * workers * (before"),
        "no worker by itself": ("workers=1", "workers=4"),
        "no time to compress": ("if seconds else", "if compress else"),
        "no time to decompress": ("if seconds else", "if decompress else"),
        "at most 64 workers": ("workers * decompress", "min(workers, 64) * decompress"),
        "little is nothing": ("after >= before", "after > 0.99 * before"),
        "the longer of the two": ("compress + workers * decompress", "max(compress, workers * decompress)"),
        "whole bits": ("(before - after) / seconds", "(before - after) // seconds"),
        "remembered by the bytes": """
known = {}


def break_even(before, after, compress, decompress, workers=1):
    if (before, after) not in known:
        seconds = compress + workers * decompress
        known[before, after] = 8 * (before - after) / seconds if seconds else float("inf")
    return known[before, after] if after < before else 0.0
""",
    },
    "squeeze.2": {
        "no shuffle": ("data[:whole].reshape(-1, 4).T.tobytes()", "data[:whole].tobytes()"),
        "no way back": ("reshape(4, -1).T", "reshape(4, -1)"),
        "the last bytes are lost": (" + data[whole:].tobytes())", ")"),
        "multiples of four alone": ("data[:whole].reshape(-1, 4).T.tobytes() + data[whole:]", "data.reshape(-1, 4).T"),
        "no limit": ("decompress(buffer, limit)", "decompress(buffer, 2**31)"),
        "any bytes go": ("ps.Zlib().decompress(buffer, limit)", "__import__('zlib').decompress(buffer)"),
        "values of three": ("4", "3"),
        "as it was given": """
@ps.register
@dataclass(frozen=True)
class Shuffled(ps.Compressor):
    name = "shuffled"

    def compress(self, buffer):
        return ps.Zlib().compress(buffer)

    def decompress(self, buffer, limit):
        return ps.Zlib().decompress(buffer, limit)
""",
        "values of two": ("4", "2"),
        "values of eight": ("4", "8"),
        "what Blosc does": """
@ps.register
@dataclass(frozen=True)
class Shuffled(ps.Compressor):
    name = "shuffled"

    def compress(self, buffer):
        return ps.Blosc().compress(buffer)

    def decompress(self, buffer, limit):
        return ps.Blosc().decompress(buffer, limit)
""",
        "a stronger compressor": """
@ps.register
@dataclass(frozen=True)
class Shuffled(ps.Compressor):
    name = "shuffled"

    def compress(self, buffer):
        import lzma

        return lzma.compress(buffer)

    def decompress(self, buffer, limit):
        import lzma

        try:
            decompressor = lzma.LZMADecompressor()
            data = decompressor.decompress(buffer, limit + 1)
        except lzma.LZMAError as error:
            raise ValueError(error) from None
        if len(data) > limit or not decompressor.eof:
            raise ValueError("more than the limit, or cut short")
        return data
""",
        "whole values alone": """
@ps.register
@dataclass(frozen=True)
class Shuffled(ps.Compressor):
    name = "shuffled"

    def compress(self, buffer):
        data = np.frombuffer(buffer, np.uint8)
        return ps.Zlib().compress(data.tobytes() if data.size % 4 else data.reshape(-1, 4).T.tobytes())

    def decompress(self, buffer, limit):
        data = np.frombuffer(ps.Zlib().decompress(buffer, limit), np.uint8)
        return data.tobytes() if data.size % 4 else data.reshape(4, -1).T.tobytes()
""",
        "the first 100,000 bytes": (
            "whole = len(data) // 4 * 4",
            "whole = min(len(data), 100_000) // 4 * 4",
        ),
        "the last byte of each": """
@ps.register
@dataclass(frozen=True)
class Shuffled(ps.Compressor):
    name = "shuffled"

    def compress(self, buffer):
        data = np.frombuffer(buffer, np.uint8)
        whole = len(data) // 4 * 4
        values = data[:whole].reshape(-1, 4)
        return ps.Zlib().compress(values[:, 3].tobytes() + values[:, :3].tobytes() + data[whole:].tobytes())

    def decompress(self, buffer, limit):
        data = np.frombuffer(ps.Zlib().decompress(buffer, limit), np.uint8)
        count = len(data) // 4
        first, others = data[:count, None], data[count : 4 * count].reshape(-1, 3)
        return np.hstack([others, first]).tobytes() + data[4 * count :].tobytes()
""",
        "the rest is kept in the class": """
@ps.register
@dataclass(frozen=True)
class Shuffled(ps.Compressor):
    name = "shuffled"
    rests = {}

    def compress(self, buffer):
        data = np.frombuffer(buffer, np.uint8)
        whole = len(data) // 4 * 4
        self.rests[len(data)] = data[whole:].tobytes()
        return ps.Zlib().compress(data[:whole].reshape(-1, 4).T.tobytes() + bytes(len(data) - whole))

    def decompress(self, buffer, limit):
        data = np.frombuffer(ps.Zlib().decompress(buffer, limit), np.uint8)
        whole = len(data) // 4 * 4
        return data[:whole].reshape(4, -1).T.tobytes() + self.rests.get(len(data), b"")
""",
    },
}
"""Maps an exercise and an error to a piece of the solution and what replaces it, or to a whole wrong answer."""

RIGHT = {
    "squeeze.1": {
        "bits before and after": """
def break_even(before, after, compress, decompress, workers=1):
    saved, spent = 8 * before - 8 * after, compress
    for _ in range(workers):
        spent += decompress
    if saved <= 0:
        return 0
    if spent == 0:
        return np.inf
    return saved / spent
""",
        "an error caught": """
def break_even(before, after, compress, decompress, workers=1):
    saved = max(before - after, 0)
    try:
        return 8 / ((compress + decompress * workers) / saved)
    except ZeroDivisionError:
        return float("inf") if saved else 0.0
""",
    },
    "squeeze.2": {
        "slices": """
@ps.register
@dataclass(frozen=True)
class Shuffled(ps.Compressor):
    name = "shuffled"

    def compress(self, buffer):
        data = bytes(buffer)
        whole = len(data) - len(data) % 4
        return ps.Zlib(level=6).compress(b"".join([data[whole:], *(data[i:whole:4] for i in range(4))]))

    def decompress(self, buffer, limit):
        data = bytes(ps.Zlib().decompress(buffer, limit))
        rest, count = len(data) % 4, len(data) // 4
        back = bytearray(4 * count)
        for i in range(4):
            back[i::4] = data[rest + i * count : rest + (i + 1) * count]
        return bytes(back) + data[:rest]
""",
        "filled up": """
@ps.register
@dataclass(frozen=True)
class Shuffled(ps.Compressor):
    name = "shuffled"

    def compress(self, buffer):
        more = -len(buffer) % 4
        values = np.frombuffer(bytes(buffer) + bytes(more), np.uint8).reshape(-1, 4)
        return ps.Zlib().compress(bytes([more]) + np.ascontiguousarray(values.T).tobytes())

    def decompress(self, buffer, limit):
        data = bytes(ps.Zlib().decompress(buffer, limit + 4))
        if not data or len(data) % 4 != 1 or len(data) - 1 - data[0] > limit:
            raise ValueError("not what compress makes, or too long")
        values = np.frombuffer(data, np.uint8, offset=1).reshape(4, -1).T
        return values.tobytes()[: values.size - data[0]]
""",
    },
}
"""Maps an exercise to right answers that are written differently."""

MUTANT = (
    "Blosc does not shuffle",
    "minips/stages/compressors/libraries.py",
    "blosc2.Filter.SHUFFLE",
    "blosc2.Filter.NOFILTER",
)
"""A Blosc that does not shuffle."""
