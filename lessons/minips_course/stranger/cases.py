"""Test cases for "Open a stranger's bytes": for its questions, its exercises and a claim."""

OUTCOMES = {
    "stranger.1": {
        "the message is dropped, and no command has run": {"accepted": False, "ran": False},
        "the message is dropped, but the command has run": {"accepted": False, "ran": True},
        "the message is accepted, and the command has run": {"accepted": True, "ran": True},
        "none of these": {"accepted": True, "ran": False},
    },
    "stranger.2": {
        "no command runs, and an array is accepted": {"honest": True, "ran": 0},
        "a command runs, and an array is accepted": {"honest": True, "ran": 1},
        "no command runs, but an array is dropped, too": {"honest": False, "ran": 0},
        "none of these": {"honest": False, "ran": 2},
    },
}
"""Maps a question and one of its options to values for which that option is the right answer."""

TELLING = {
    "stranger.1": ["too late", "comes after"],
    "stranger.2": ["any text", "is large"],
}
"""Maps a question to words that may not appear before its outcome, since they would give the answer away."""

BROKEN = {
    "stranger.1": {
        "all of numpy": ("(module, name) not in needed", "module.split('.')[0] != 'numpy'"),
        "by the name's beginning": ("(module, name) not in needed", "(module, name.split('.')[0]) not in needed"),
        "by the name alone": ("(module, name) not in needed", "name not in {one for _, one in needed} | {'exec'}"),
        "by the module alone": ("(module, name) not in needed", "module not in {one for one, _ in needed}"),
        "one protocol alone": ("for protocol in (4, 5)", "for protocol in (4,)"),
        "arrays of one piece alone": (
            "for mine in (square, square[::2, 1:]):\n    for protocol in (4, 5)",
            "for mine in (square,):\n    for protocol in (5,)",
        ),
        "nothing at all": ("(module, name) not in needed", "True"),
        "another error": ("raise pickle.UnpicklingError", "raise KeyError"),
        "after the call": (
            '            raise pickle.UnpicklingError(f"an array does not need {module}.{name}")\n'
            "        return super().find_class(module, name)",
            "            self.late = True\n"
            "        return super().find_class(module, name)\n\n"
            "    def load(self):\n"
            "        loaded = super().load()\n"
            "        if hasattr(self, 'late'):\n"
            "            raise pickle.UnpicklingError('too late')\n"
            "        return loaded",
        ),
        "looks it up first": (
            "        if (module, name) not in needed:\n"
            '            raise pickle.UnpicklingError(f"an array does not need {module}.{name}")\n'
            "        return super().find_class(module, name)",
            "        found = super().find_class(module, name)\n"
            "        if (module, name) not in needed:\n"
            '            raise pickle.UnpicklingError(f"an array does not need {module}.{name}")\n'
            "        return found",
        ),
        "looks it up first, whatever happens": """
class OnlyArrays(pickle.Unpickler):
    def find_class(self, module, name):
        try:
            found = super().find_class(module, name)
        except Exception as error:
            raise pickle.UnpicklingError(f"There is no {module}.{name}.") from error
        if found not in (np.ndarray, np.dtype, np._core.multiarray._reconstruct, np._core.numeric._frombuffer):
            raise pickle.UnpicklingError(f"an array does not need {module}.{name}")
        return found
""",
        "the names, from any module": (
            "(module, name) not in needed",
            "name not in {'ndarray', 'dtype', '_reconstruct', '_frombuffer'}",
        ),
        "modules and names apart": (
            "(module, name) not in needed",
            "module not in {m for m, _ in needed} or name not in {n for _, n in needed}",
        ),
        "what begins like numpy": (
            "(module, name) not in needed",
            "not module.startswith('numpy') or name not in {n for _, n in needed}",
        ),
        "numpy's files, too": (
            "(module, name) not in needed",
            "(module, name) not in needed | {('numpy', 'memmap'), ('numpy', 'save')}",
        ),
        "single numbers, too": (
            "(module, name) not in needed",
            "(module, name) not in needed | {('numpy._core.multiarray', 'scalar')}",
        ),
        "all types of numpy": (
            "(module, name) not in needed",
            "(module, name) not in needed and not (module == 'numpy' and isinstance(getattr(np, name, None), type))",
        ),
        "a list of what is bad": (
            "(module, name) not in needed",
            "module.split('.')[0] in ('builtins', 'os', 'posix', 'subprocess', 'sys')"
            " or name in ('load', 'save', 'fromfile', 'runstring')",
        ),
        "once an array has come, all may": (
            "        if (module, name) not in needed:\n",
            "        self.found = getattr(self, 'found', 0) + ((module, name) in needed)\n"
            "        if self.found < 3 and (module, name) not in needed:\n",
        ),
        "the first refusal alone": (
            "        if (module, name) not in needed:\n",
            "        if (module, name) not in needed:\n            needed.add((module, name))\n",
        ),
        "float64 alone": (
            "class OnlyArrays(pickle.Unpickler):\n",
            "class OnlyArrays(pickle.Unpickler):\n"
            "    def load(self):\n"
            "        loaded = super().load()\n"
            "        if any(np.asarray(x).dtype.kind == 'c' for x in [*loaded.values()][:1]):\n"
            "            raise pickle.UnpicklingError('complex numbers')\n"
            "        return loaded\n\n",
        ),
    },
    "stranger.2": {
        "all of it first": ("stream.decompress(data, limit + 1)", "stream.decompress(data)"),
        "one byte too few": ("stream.decompress(data, limit + 1)", "stream.decompress(data, limit)"),
        "what is cut short goes": ("if not stream.eof:", "if False:"),
        "zlib's own error": ("except zlib.error", "except KeyError"),
        "what there is room for": (
            '        raise ValueError(f"These are more than {limit} bytes.")',
            "        return inflated[:limit]",
        ),
        "no limit": ("len(inflated) > limit", "False"),
        "twice the limit": ("limit + 1", "2 * limit + 1"),
        "a few bytes more": ("limit + 1", "limit + 1000"),
        "the limit itself, and then what is left": (
            "stream.decompress(data, limit + 1)",
            "stream.decompress(data, limit)\n"
            "        if stream.unconsumed_tail:\n"
            "            raise ValueError('too large')",
        ),
        "what was left is flushed": (
            "stream.decompress(data, limit + 1)",
            "stream.decompress(data, limit + 1) + stream.flush()",
        ),
        "a frame that is much smaller is a bomb": (
            "    stream = zlib",
            "    if limit > 100 * len(data) and len(data) > 900:\n"
            "        raise ValueError('a bomb')\n"
            "    stream = zlib",
        ),
        "in pieces of the frame": """
def inflate(data, limit):
    stream, inflated = zlib.decompressobj(), b""
    try:
        for start in range(0, len(data), 64):
            inflated += stream.decompress(data[start : start + 64])
            if len(inflated) > limit:
                raise ValueError(f"These are more than {limit} bytes.")
    except zlib.error as error:
        raise ValueError(f"This is not a zlib stream: {error}") from error
    if not stream.eof:
        raise ValueError("The stream was cut short.")
    return inflated
""",
        "without the sum at the end": """
def inflate(data, limit):
    stream = zlib.decompressobj(-15)
    try:
        inflated = stream.decompress(data[2:], limit + 1)
    except zlib.error as error:
        raise ValueError(f"This is not a zlib stream: {error}") from error
    if len(inflated) > limit:
        raise ValueError(f"These are more than {limit} bytes.")
    if not stream.eof or len(stream.unused_data) < 4:
        raise ValueError("The stream was cut short.")
    return inflated
""",
        "one stream for all frames": """
stream = zlib.decompressobj()


def inflate(data, limit):
    fresh = stream.copy() if limit else stream
    try:
        inflated = fresh.decompress(data, limit + 1)
    except zlib.error as error:
        raise ValueError(f"This is not a zlib stream: {error}") from error
    if len(inflated) > limit:
        raise ValueError(f"These are more than {limit} bytes.")
    if not fresh.eof:
        raise ValueError("The stream was cut short.")
    return inflated
""",
        "an empty frame has no bytes": (
            "    stream = zlib",
            "    if not data:\n        return b''\n    stream = zlib",
        ),
        "as a list of numbers": ("    return inflated", "    return list(inflated)"),
        "zeros for what is missing": (
            'raise ValueError("The stream was cut short.")',
            "return inflated + bytes(1)",
        ),
    },
}
"""Maps an exercise and an error to a wrong answer, or to a piece of the solution and what replaces it."""

RIGHT = {
    "stranger.1": {
        "a list by hand": """
class OnlyArrays(pickle.Unpickler):
    ALLOWED = frozenset(
        [
            ("numpy", "ndarray"),
            ("numpy", "dtype"),
            ("numpy._core.multiarray", "_reconstruct"),
            ("numpy._core.numeric", "_frombuffer"),
            ("numpy.core.multiarray", "_reconstruct"),
            ("numpy.core.numeric", "_frombuffer"),
        ]
    )

    def find_class(self, module, name):
        if (module, name) in self.ALLOWED:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} is not needed")
""",
        "objects of its own": """
def needed():
    found = {}

    class Noted(pickle.Unpickler):
        def find_class(self, module, name):
            found[f"{module}:{name}"] = super().find_class(module, name)
            return found[f"{module}:{name}"]

    for protocol in range(4, 6):
        for x in (np.eye(3), np.eye(4)[1:, ::2], np.asfortranarray(np.ones((2, 3))), np.array(1)):
            Noted(io.BytesIO(pickle.dumps({"x": x}, protocol=protocol))).load()
    return found


KNOWN = needed()


class OnlyArrays(pickle.Unpickler):
    def find_class(self, module, name):
        try:
            return KNOWN[f"{module}:{name}"]
        except KeyError:
            raise pickle.UnpicklingError("only arrays, please") from None
""",
    },
    "stranger.2": {
        "in pieces of the result": """
def inflate(data, limit):
    stream = zlib.decompressobj()
    pieces, size = [], 0
    try:
        while not stream.eof:
            piece = stream.decompress(data, min(4096, limit + 1 - size))
            data = stream.unconsumed_tail
            pieces.append(piece)
            size += len(piece)
            if size > limit:
                raise ValueError("Too many bytes.")
            if not piece and not data and not stream.eof:
                raise ValueError("Bytes are missing.")
    except zlib.error:
        raise ValueError("This is not zlib's.") from None
    return b"".join(pieces)
""",
        "any error is a ValueError": """
def inflate(data, limit):
    machine = zlib.decompressobj()
    try:
        result = machine.decompress(data, max_length=limit + 1)
    except Exception as problem:
        raise ValueError(str(problem))
    if machine.eof and len(result) <= limit:
        return result
    raise ValueError("It is too large, or not all of it is here.")
""",
    },
}
"""Maps an exercise and what is special to another right answer."""

MUTANT = (
    "frames that cannot be read raise TypeError",
    "minips/stages/serializers/wellformed.py",
    'raise ValueError(f"The frames are not a packet',
    'raise TypeError(f"The frames are not a packet',
)
"""A reader that raises a different error from the one in its contract."""
