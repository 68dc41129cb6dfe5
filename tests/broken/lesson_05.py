"""Lesson 05: what is wrong, the piece of the solution, and what stands there instead."""

BROKEN = {
    "05.1": {
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
    "05.2": {
        "one piece": ("while len(data) < count:", "for _ in range(1):"),
        "greedy": ("connection.recv(count - len(data))", "connection.recv(65536)"),
        "the end goes unnoticed": ("if not piece:", "if False:"),
        "what there is": ('raise ConnectionError(f"The stream ended after {len(data)} of {count} bytes.")', "break"),
        "another error": ("raise ConnectionError", "raise ValueError"),
        "the length in one piece": ("read(connection, 4)", "connection.recv(4)"),
        "the other end first": ('"<I"', '">I"'),
    },
}
