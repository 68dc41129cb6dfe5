"""Test cases for "Put arrays on a wire": for its questions, its exercises and a claim."""

from math import nan

OUTCOMES = {
    "wire.1": {
        "about 40 000 bytes": {"ratio": 1.0},
        "about 80 000 bytes": {"ratio": 2.1},
        "more than 160 000 bytes": {"ratio": 5.9},
        "none of these": {"ratio": 3.3},
    },
    "wire.2": {
        "about 25 times": {"times": 26.0},
        "about 5 times": {"times": 4.0},
        "less than 2.5 times": {"times": 0.9},
        "none of these": {"times": nan},
    },
}
"""Maps a question and one of its options to values for which that option is the right answer."""

TELLING = {
    "wire.1": ["17", "six times"],
    "wire.2": ["hands out", "uncopied", "not a copy", "own memory"],
}
"""Maps a question to words that may not appear before its outcome, since they would give the answer away."""

BROKEN = {
    "wire.1": {
        "the shape is lost": (".reshape(shape)", ""),
        "one dimension alone": (".reshape(shape)", ".reshape(shape[:1])"),
        "all is float32": ("np.frombuffer(data, dtype,", "np.frombuffer(data, '<f4',"),
        "struct.error": ("except struct.error", "except KeyError"),
        "a large header": ("for name, x in tensors.items()})", "for name, x in tensors.items()}, indent=60)"),
        "numpy's own order": ("x.tobytes()", "x.tobytes('F')"),
        "all arrays begin alike": ("start += tensors[name].nbytes", "pass"),
        "what is cut short is filled up": (
            "(length,) = struct",
            "data = data + bytes(2000)\n            (length,) = struct",
        ),
        "empty arrays count as one": ("np.prod(shape, dtype=int)", "np.prod([size or 1 for size in shape], dtype=int)"),
        "a pickle": ('return struct.pack("<I", len(header)) + header', "return pickle.dumps(tensors)\n        header"),
        "the name is lost": ("tensors[name]", "tensors['W']"),
    },
    "wire.2": {
        "one piece": ("while len(data) < count:", "for _ in range(1):"),
        "greedy": ("connection.recv(count - len(data))", "connection.recv(65536)"),
        "the end goes unnoticed": ("if not piece:", "if False:"),
        "what there is": ('raise ConnectionError(f"The stream ended after {len(data)} of {count} bytes.")', "break"),
        "another error": ("raise ConnectionError", "raise ValueError"),
        "the length in one piece": ("read(connection, 4)", "connection.recv(4)"),
        "the other end first": ('"<I"', '">I"'),
    },
}
"""Maps an exercise and an error to a piece of the solution and the wrong piece that replaces it."""

MUTANT = (
    "an array's bytes are a copy of it",
    "minips/stages/serializers/base.py",
    "return np.frombuffer(array, np.uint8).data",
    "return memoryview(array.tobytes())",
)
"""Arrays that are copied on their way into frames."""
