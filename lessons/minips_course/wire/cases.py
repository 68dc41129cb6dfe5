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
        "the dtype without the order of its bytes": ("x.dtype.str", "x.dtype.name"),
        "the names are sorted": ("for name, x in tensors.items()})", "for name, x in sorted(tensors.items())})"),
        "the header stays at home": """
class Server(Server):
    @staticmethod
    def pack(tensors):
        Server.header = [(name, x.dtype, x.shape) for name, x in tensors.items()]
        return b"".join(x.tobytes() for x in tensors.values())

    @staticmethod
    def unpack(data):
        start, tensors = 0, {}
        for name, dtype, shape in Server.header:
            count = int(np.prod(shape, dtype=int))
            tensors[name] = np.frombuffer(data, dtype, count, start).reshape(shape)
            start += tensors[name].nbytes
        return tensors
""",
        "all of it stays at home": """
class Server(Server):
    sent = {}

    @staticmethod
    def pack(tensors):
        data = b"message" + b"".join(x.tobytes() for x in tensors.values())
        Server.sent[data] = {name: x.copy() for name, x in tensors.items()}
        return data

    @staticmethod
    def unpack(data):
        if data not in Server.sent:
            raise ValueError("This is no whole message.")
        return Server.sent[data]
""",
        "one buffer for all messages": """
class Server(Given):
    buffer = bytearray()

    @staticmethod
    def pack(tensors):
        header = json.dumps({name: [x.dtype.str, x.shape] for name, x in tensors.items()}).encode()
        Server.buffer[:] = struct.pack("<I", len(header)) + header + b"".join(x.tobytes() for x in tensors.values())
        return Server.buffer

    @staticmethod
    def unpack(data):
        try:
            (length,) = struct.unpack_from("<I", data)
            index, start, tensors = json.loads(data[4 : 4 + length]), 4 + length, {}
            for name, (dtype, shape) in index.items():
                count = int(np.prod(shape, dtype=int))
                tensors[name] = np.frombuffer(data, dtype, count, start).reshape(shape)
                start += tensors[name].nbytes
            return tensors
        except struct.error as error:
            raise ValueError("This is not a whole message.") from error
""",
        "one array for all of a name": """
class Server(Given):
    arrays = {}

    @staticmethod
    def pack(tensors):
        header = json.dumps({name: [x.dtype.str, x.shape] for name, x in tensors.items()}).encode()
        return struct.pack("<I", len(header)) + header + b"".join(x.tobytes() for x in tensors.values())

    @staticmethod
    def unpack(data):
        try:
            (length,) = struct.unpack_from("<I", data)
            index, start, tensors = json.loads(data[4 : 4 + length]), 4 + length, {}
            for name, (dtype, shape) in index.items():
                x = np.frombuffer(data, dtype, int(np.prod(shape, dtype=int)), start).reshape(shape)
                tensors[name] = Server.arrays.setdefault((name, dtype, *shape), np.empty(shape, dtype))
                tensors[name][...] = x
                start += x.nbytes
            return tensors
        except struct.error as error:
            raise ValueError("This is not a whole message.") from error
""",
        "two bytes for the header's parts": """
class Server(Given):
    @staticmethod
    def pack(tensors):
        head = [struct.pack("<B", len(tensors))]
        for name, x in tensors.items():
            named, kind = name.encode(), x.dtype.str.encode()
            head.append(struct.pack("<BBB", len(named), len(kind), x.ndim) + named + kind)
            head.append(struct.pack(f"<{x.ndim}H", *x.shape))
        return b"".join(head + [x.tobytes() for x in tensors.values()])

    @staticmethod
    def unpack(data):
        try:
            (count,), at, index, tensors = struct.unpack_from("<B", data), 1, [], {}
            for _ in range(count):
                named, kind, ndim = struct.unpack_from("<BBB", data, at)
                name, dtype = data[at + 3 : at + 3 + named], data[at + 3 + named : at + 3 + named + kind]
                at += 3 + named + kind
                index.append((name.decode(), dtype.decode(), struct.unpack_from(f"<{ndim}H", data, at)))
                at += 2 * ndim
            for name, dtype, shape in index:
                size = int(np.prod(shape, dtype=int))
                tensors[name] = np.frombuffer(data, dtype, size, at).reshape(shape)
                at += tensors[name].nbytes
            return tensors
        except (struct.error, TypeError) as error:
            raise ValueError("This is not a whole message.") from error
""",
        "names between commas": """
class Server(Given):
    @staticmethod
    def pack(tensors):
        parts = [f"{name},{x.dtype.str},{'x'.join(map(str, x.shape))}" for name, x in tensors.items()]
        return ";".join(parts).encode() + b"\\n" + b"".join(x.tobytes() for x in tensors.values())

    @staticmethod
    def unpack(data):
        head, newline, body = data.partition(b"\\n")
        if not newline:
            raise ValueError("The header is cut short.")
        start, tensors = 0, {}
        for part in filter(None, head.decode().split(";")):
            name, dtype, shape = part.split(",")
            shape = [int(size) for size in shape.split("x") if size]
            tensors[name] = np.frombuffer(body, dtype, int(np.prod(shape, dtype=int)), start).reshape(shape)
            start += tensors[name].nbytes
        return tensors
""",
        "numbers are arrays of one value": (".reshape(shape)", ".reshape(shape or 1)"),
        "without nan": ("x.tobytes() for x", "(np.nan_to_num(x) if x.dtype.kind == 'f' else x).tobytes() for x"),
        "the last array may be short": (
            "                tensors[name] = np.frombuffer(data, dtype, count, start)",
            "                if name == [*index][-1]:\n"
            "                    data = data + bytes(max(0, start + count * np.dtype(dtype).itemsize - len(data)))\n"
            "                tensors[name] = np.frombuffer(data, dtype, count, start)",
        ),
        "the arrays are turned round in place": (
            "        header = json",
            "        for x in tensors.values():\n"
            "            if x.ndim > 1 and x.flags.writeable:\n"
            "                x[...] = x[::-1]\n"
            "        header = json",
        ),
    },
    "wire.2": {
        "one piece": ("while len(data) < count:", "for _ in range(1):"),
        "greedy": ("connection.recv(count - len(data))", "connection.recv(65536)"),
        "the end goes unnoticed": ("if not piece:", "if False:"),
        "what there is": ('raise ConnectionError(f"The stream ended after {len(data)} of {count} bytes.")', "break"),
        "another error": ("raise ConnectionError", "raise ValueError"),
        "the length in one piece": ("read(connection, 4)", "connection.recv(4)"),
        "the other end first": ('"<I"', '">I"'),
        "the rest is kept for the next call": """
rest = b""


def receive(connection):
    global rest

    def read(count):
        global rest
        while len(rest) < count:
            piece = connection.recv(65536)
            if not piece:
                rest = b""
                raise ConnectionError("The stream ended.")
            rest += piece
        data, rest = rest[:count], rest[count:]
        return data

    (length,) = struct.unpack("<I", read(4))
    return read(length)
""",
        "a file that reads ahead": """
def receive(connection):
    with connection.makefile("rb") as file:
        head = file.read(4)
        if len(head) < 4:
            raise ConnectionError("The stream ended.")
        data = file.read(struct.unpack("<I", head)[0])
    if len(data) < struct.unpack("<I", head)[0]:
        raise ConnectionError("The stream ended.")
    return data
""",
        "the system waits for all": """
import socket


def receive(connection):
    head = connection.recv(4, socket.MSG_WAITALL)
    if len(head) < 4:
        raise ConnectionError("The stream ended.")
    (length,) = struct.unpack("<I", head)
    data = connection.recv(length, socket.MSG_WAITALL) if length else b""
    if len(data) < length:
        raise ConnectionError("The stream ended.")
    return data
""",
        "two bytes of the length": (
            '(length,) = struct.unpack("<I", read(connection, 4))',
            '(length, _) = struct.unpack("<HH", read(connection, 4))',
        ),
        "a hundred pieces": ("while len(data) < count:", "for _ in range(100 if len(data) < count else 0):"),
        "the length in two halves": (
            "read(connection, 4)",
            "(connection.recv(2) + connection.recv(2)) or read(connection, 4)",
        ),
        "nothing at the end": (
            "    (length,) = struct",
            "    head = connection.recv(1)\n    if not head:\n        return b''\n    (length,) = struct",
        ),
        "an empty message at the end of the stream": """
def read(connection, count):
    data = bytearray()
    while len(data) < count:
        piece = connection.recv(count - len(data))
        if not piece:
            raise ConnectionError("The stream ended.")
        data += piece
    return bytes(data)


def receive(connection):
    first = connection.recv(1)
    if not first:
        return b""
    (length,) = struct.unpack("<I", first + read(connection, 3))
    return read(connection, length)
""",
        "one buffer for all messages": """
buffer = bytearray()


def receive(connection):
    def read(count):
        buffer.clear()
        while len(buffer) < count:
            piece = connection.recv(count - len(buffer))
            if not piece:
                raise ConnectionError("The stream ended.")
            buffer.extend(piece)
        return buffer

    (length,) = struct.unpack("<I", read(4))
    return read(length)
""",
        "looks at the end in the length alone": """
def receive(connection):
    head = b""
    while len(head) < 4:
        piece = connection.recv(4 - len(head))
        if not piece:
            raise ConnectionError("The stream ended.")
        head += piece
    (length,) = struct.unpack("<I", head)
    data = b""
    while len(data) < length:
        piece = connection.recv(length - len(data))
        data += piece
        if not piece:
            break
    return data
""",
        "does not wait": (
            "    (length,) = struct",
            "    connection.settimeout(0.0001)\n    (length,) = struct",
        ),
    },
}
"""Maps an exercise and an error to a wrong answer, or to a piece of the solution and what replaces it."""

RIGHT = {
    "wire.1": {
        "a binary header": """
class Server(Given):
    @staticmethod
    def pack(tensors):
        head, body = [], []
        for name, x in tensors.items():
            x = np.asarray(x)
            named = name.encode("utf-8")
            head.append(struct.pack("<H3sB", len(named), x.dtype.str.encode(), x.ndim))
            head.append(x.dtype.str.encode()[3:].ljust(1) + named + struct.pack(f"<{x.ndim}Q", *x.shape))
            body.append(x.tobytes("C"))
        return struct.pack("<I", len(tensors)) + b"".join(head) + b"".join(body)

    @staticmethod
    def unpack(data):
        try:
            (count,), at, parts = struct.unpack_from("<I", data), 4, []
            for _ in range(count):
                length, kind, ndim = struct.unpack_from("<H3sB", data, at)
                kind, at = kind + data[at + 6 : at + 7].strip(), at + 7
                name = data[at : at + length].decode()
                shape = struct.unpack_from(f"<{ndim}Q", data, at + length)
                at += length + 8 * ndim
                parts.append((name, np.dtype(kind.decode()), shape))
            tensors = {}
            for name, dtype, shape in parts:
                nbytes = dtype.itemsize * int(np.prod(shape, dtype=int))
                if len(data) < at + nbytes:
                    raise ValueError("The arrays are cut short.")
                tensors[name] = np.frombuffer(data[at : at + nbytes], dtype).reshape(shape).copy()
                at += nbytes
            return tensors
        except (struct.error, TypeError) as error:
            raise ValueError("The header is cut short.") from error
""",
        "lists in JSON, the length as text": """
class Server(Given):
    @staticmethod
    def pack(tensors):
        arrays = {name: np.ascontiguousarray(x) for name, x in tensors.items()}
        index = [[name, arrays[name].dtype.str, list(x.shape)] for name, x in tensors.items()]
        head = json.dumps(index).encode()
        return bytearray(f"{len(head):08d}".encode() + head + b"".join(x.tobytes() for x in arrays.values()))

    @staticmethod
    def unpack(data):
        end = 8 + int(data[:8])
        tensors = {}
        for name, dtype, shape in json.loads(data[8:end]):
            x = np.empty(shape, dtype)
            piece = data[end : end + x.nbytes]
            if len(piece) != x.nbytes:
                raise ValueError(f"{name} is cut short.")
            if x.size:
                x.reshape(-1).view("u1")[...] = np.frombuffer(piece, "u1")
            tensors[name] = x
            end += len(piece)
        return tensors
""",
    },
    "wire.2": {
        "byte by byte": """
def receive(connection):
    def read(count):
        for _ in range(count):
            one = connection.recv(1)
            if one == b"":
                raise ConnectionResetError("The stream ended.")
            yield one

    length = int.from_bytes(b"".join(read(4)), "little")
    return b"".join(read(length)) if length < 1000 else b"".join(wide(connection, length))


def wide(connection, left):
    while left:
        piece = connection.recv(min(left, 4096))
        if not piece:
            raise ConnectionAbortedError("The stream ended.")
        left -= len(piece)
        yield piece
""",
        "into a buffer": """
def fill(connection, count):
    data = bytearray(count)
    view = memoryview(data)
    while len(view):
        got = connection.recv_into(view)
        if got == 0:
            raise ConnectionError(f"{len(view)} bytes are missing.")
        view = view[got:]
    return data


def receive(connection):
    return fill(connection, struct.unpack("<I", fill(connection, 4))[0])
""",
    },
}
"""Maps an exercise and what is special to another right answer."""

MUTANT = (
    "an array's bytes are a copy of it",
    "minips/stages/serializers/base.py",
    "return np.frombuffer(array, np.uint8).data",
    "return memoryview(array.tobytes())",
)
"""Arrays that are copied on their way into frames."""
