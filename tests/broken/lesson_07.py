"""Lesson 07: what is wrong, the piece of the solution, and what stands there instead."""

BROKEN = {
    "07.1": {
        "bytes per second": ("8 * (before - after)", "(before - after)"),
        "what is left": ("(before - after)", "after"),
        "all of it": ("(before - after)", "before"),
        "negative": ("if after >= before:\n        return 0.0\n", ""),
        "seconds are not 0": ('/ seconds if seconds else float("inf")', "/ seconds"),
        "upside down": ("8 * (before - after) / seconds", "seconds / (8 * (before - after))"),
        "always": ("8 * (before - after) / seconds if seconds else ", ""),
    },
    "07.2": {
        "no shuffle": ("data[:whole].reshape(-1, 4).T.tobytes()", "data[:whole].tobytes()"),
        "no way back": ("reshape(4, -1).T", "reshape(4, -1)"),
        "the last bytes are lost": (" + data[whole:].tobytes())", ")"),
        "multiples of four alone": ("data[:whole].reshape(-1, 4).T.tobytes() + data[whole:]", "data.reshape(-1, 4).T"),
        "no limit": ("decompress(buffer, limit)", "decompress(buffer, 2**31)"),
        "any bytes go": ("ps.Zlib().decompress(buffer, limit)", "__import__('zlib').decompress(buffer)"),
        "values of three": ("4", "3"),
    },
    "07.3": {
        "no gaps": ("np.diff(positions, prepend=np.uint32(0))", "positions"),
        "the first is lost": ("prepend=np.uint32(0)", "prepend=positions[:1]"),
        "one too few": ("np.diff(positions, prepend=np.uint32(0))", "np.diff(positions)"),
        "too wide": ("np.cumsum(gaps, dtype=np.uint32)", "np.cumsum(gaps)"),
        "too narrow": ("gaps.tobytes()", "gaps.astype(np.uint16).astype(np.uint32).tobytes()"),
        "in place": ("gaps = np.diff(", "positions[1:] -= positions[:-1].copy(); gaps = np.diff("),
        "pieces of text": ("zlib.compress(gaps.tobytes())", "str(gaps.tolist())"),
    },
}
