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
    },
}
"""Maps an exercise and an error to a piece of the solution and the wrong piece that replaces it."""

MUTANT = (
    "frames that cannot be read raise TypeError",
    "minips/stages/serializers/wellformed.py",
    'raise ValueError(f"The frames are not a packet',
    'raise TypeError(f"The frames are not a packet',
)
"""A reader that raises a different error from the one in its contract."""
