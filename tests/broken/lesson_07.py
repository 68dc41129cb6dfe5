"""Lesson 07: what is wrong, the piece of the solution, and what stands there instead."""

BROKEN = {
    "07.1": {
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
}
