"""Test cases for "Put arrays on a wire": for its questions, its exercises and a claim."""

from math import nan

OUTCOMES = {
    "wire.1": {
        "about 40 000 bytes": {"ratio": 1.0},
        "about 80 000 bytes": {"ratio": 2.1},
        "more than 160 000 bytes": {"ratio": 5.9},
        "none of these": {"ratio": 3.3},
    },
    "wire.3": {
        "about 6 times": {"times": 6.0},
        "about 30 times": {"times": 30.0},
        "more than 100 times": {"times": 800.0},
        "none of these": {"times": nan},
    },
}
"""Maps a question and one of its options to values for which that option is the right answer."""

TELLING = {
    "wire.1": ["17", "six times"],
    "wire.3": ["hundred", "digit by digit", "hands out"],
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
    "wire.3": {
        "all on server 0": """
def split(tensors, servers=2):
    return [{name: x.reshape(-1) for name, x in tensors.items()}] + [{} for _ in range(servers - 1)]


def join(pieces, like):
    return {name: pieces[0][name].reshape(x.shape) for name, x in like.items()}
""",
        "for two servers alone": (
            "pieces, start = [{} for _ in range(servers)], 0",
            "servers = 2\n    pieces, start = [{}, {}], 0",
        ),
        "whole arrays by turns": """
def split(tensors, servers=2):
    pieces = [{} for _ in range(servers)]
    for turn, (name, x) in enumerate(tensors.items()):
        pieces[turn % servers][name] = x.reshape(-1)
    return pieces


def join(pieces, like):
    whole = {}
    for piece in pieces:
        whole |= piece
    return {name: whole.get(name, x.copy()).reshape(x.shape) for name, x in like.items()}
""",
        "each array in halves": ("total * j // servers - start", "x.size * j // servers"),
        "the larger range first": ("total * j // servers", "-(-total * j // servers)"),
        "the last keys are lost": ("total * j // servers", "total // servers * j"),
        "a negative index": ("max(first, 0) : max(last, 0)", "max(first, 0) : last"),
        "column by column": ("x.reshape(-1)[max", "x.reshape(-1, order='F')[max"),
        "the last server first": ("for piece in pieces if", "for piece in pieces[::-1] if"),
        "flat arrays": (".reshape(x.shape)", ""),
        "empty arrays are refused": ("[*parts[name], x.reshape(-1)[:0]]", "parts[name]"),
        "another dtype": (".reshape(x.shape) for", ".reshape(x.shape).astype('f4') for"),
        "into the arrays of like": """
def split(tensors, servers=2):
    total = sum(x.size for x in tensors.values())
    pieces, start = [{} for _ in range(servers)], 0
    for name, x in tensors.items():
        for i, piece in enumerate(pieces):
            first, last = (total * j // servers - start for j in (i, i + 1))
            part = x.reshape(-1)[max(first, 0) : max(last, 0)]
            if part.size:
                piece[name] = part
        start += x.size
    return pieces


def join(pieces, like):
    for name, x in like.items():
        parts = [piece[name] for piece in pieces if name in piece]
        if parts:
            x[...] = np.concatenate(parts).reshape(x.shape)
    return like
""",
        "an empty piece of each array": (
            "            if part.size:\n                piece[name] = part",
            "            piece[name] = part",
        ),
        "the arrays that were split last": """
kept = {}


def split(tensors, servers=2):
    total = sum(x.size for x in tensors.values())
    pieces, start = [{} for _ in range(servers)], 0
    for name, x in tensors.items():
        kept[name] = x.copy()
        for i, piece in enumerate(pieces):
            first, last = (total * j // servers - start for j in (i, i + 1))
            part = x.reshape(-1)[max(first, 0) : max(last, 0)]
            if part.size:
                piece[name] = part
        start += x.size
    return pieces


def join(pieces, like):
    return {name: kept[name].reshape(x.shape) for name, x in like.items()}
""",
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
    "wire.3": {
        "key by key": """
def split(tensors, servers=2):
    sizes = [x.size for x in tensors.values()]
    total, key, pieces = sum(sizes), 0, [{} for _ in range(servers)]
    owner = 0
    for name, x in tensors.items():
        for value in np.ravel(x):
            while key >= total * (owner + 1) // servers:
                owner += 1
            pieces[owner].setdefault(name, []).append(value)
            key += 1
    return [{name: np.array(values, tensors[name].dtype) for name, values in piece.items()} for piece in pieces]


def join(pieces, like):
    whole = {}
    for name, x in like.items():
        whole[name], at = np.empty(x.size, x.dtype), 0
        for piece in pieces:
            part = piece.get(name, ())
            whole[name][at : at + len(part)] = part
            at += len(part)
        whole[name] = whole[name].reshape(x.shape)
    return whole
""",
        "cut at the borders": """
def split(tensors, servers=2):
    starts = np.cumsum([0] + [x.size for x in tensors.values()])
    borders = [int(starts[-1]) * i // servers for i in range(servers + 1)]
    return [
        {
            name: x.flatten()[max(low - start, 0) : high - start]
            for (name, x), start in zip(tensors.items(), starts)
            if start < high and low < start + x.size and low < high and x.size
        }
        for low, high in zip(borders, borders[1:])
    ]


def join(pieces, like):
    def whole(name, x):
        parts = [piece[name] for piece in pieces if name in piece]
        return np.concatenate(parts).reshape(x.shape) if parts else np.zeros_like(x)

    return {name: whole(name, x) for name, x in like.items()}
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
