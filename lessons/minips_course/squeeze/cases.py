"""Test cases for "Squeeze bytes": for its questions, its exercises and a claim."""

OUTCOMES = {
    "squeeze.1": {
        "about half": {"left": 0.5},
        "about nine tenths": {"left": 0.93},
        "all of them": {"left": 1.004},
        "none of these": {"left": 0.1},
    },
    "squeeze.2": {"expected": {"best": 370.0}, "otherwise": {"best": 17.0}},
    "squeeze.3": {
        "both of them": {"dense": 0.4, "yes": 0.4},
        "only yes or no": {"dense": 1.01, "yes": 0.6},
        "only dense": {"dense": 0.6, "yes": 1.01},
        "neither of them": {"dense": 1.01, "yes": 1.0},
        "none of these": {"dense": -1.0, "yes": 0.6},
    },
}
"""Maps a question and one of its options to values for which that option is the right answer."""

TELLING = {
    "squeeze.1": ["as good as random", "mantissas", "nothing to gain"],
    "squeeze.3": ["runs of zeros", "hardly any value is zero", "zeros"],
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
    },
    "squeeze.2": {
        "no shuffle": ("data[:whole].reshape(-1, 4).T.tobytes()", "data[:whole].tobytes()"),
        "no way back": ("reshape(4, -1).T", "reshape(4, -1)"),
        "the last bytes are lost": (" + data[whole:].tobytes())", ")"),
        "multiples of four alone": ("data[:whole].reshape(-1, 4).T.tobytes() + data[whole:]", "data.reshape(-1, 4).T"),
        "no limit": ("decompress(buffer, limit)", "decompress(buffer, 2**31)"),
        "any bytes go": ("ps.Zlib().decompress(buffer, limit)", "__import__('zlib').decompress(buffer)"),
        "values of three": ("4", "3"),
    },
}
"""Maps an exercise and an error to a piece of the solution and the wrong piece that replaces it."""

MUTANT = (
    "Blosc does not shuffle",
    "minips/stages/compressors/libraries.py",
    "blosc2.Filter.SHUFFLE",
    "blosc2.Filter.NOFILTER",
)
"""A Blosc that does not shuffle."""
