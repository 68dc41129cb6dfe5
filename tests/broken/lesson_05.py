"""Lesson 05: what is wrong, the piece of the solution, and what stands there instead."""

BROKEN = {
    "05.1": {
        "the shape is lost": (".reshape(shape)", ""),
        "one dimension alone": (".reshape(shape)", ".reshape(shape[:1])"),
        "the dtype is lost": ("np.dtype(data[2 : 2 + length].decode())", 'np.dtype("<f8")'),
        "struct.error": ("(struct.error, TypeError)", "TypeError"),
        "a large header": ("+ dtype + sizes", "+ dtype + sizes + bytes(80)"),
        "numpy's own order": ("array.tobytes()", "array.tobytes('F')"),
        "what is cut short is filled up": (
            "data[2 + length + 4 * ndim :]",
            "data[2 + length + 4 * ndim :] + bytes(200)",
        ),
        "pickle": ("array.tobytes()", "array.tobytes() if array.ndim else __import__('pickle').dumps(array)"),
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
    "05.3": {
        "a copy": (".view(np.uint8).data", ".view(np.uint8).tobytes()"),
        "not as bytes": ("x.reshape(-1).view(np.uint8).data", "x.data"),
        "no quantizer": ("tensors[name] = quantizer,", "tensors[name] = 'exact',"),
        "any error": ("except Exception as error", "except KeyError as error"),
        "a header that grows": (
            "json.dumps([packet.header, index])",
            "json.dumps([packet.header, index, ' ' * 30_000])",
        ),
        "no shape": (".reshape(shape)", ""),
    },
}
