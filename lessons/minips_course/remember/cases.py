"""Test cases for "Remember what was not sent": for its questions, its exercises and a claim."""

from math import nan

OUTCOMES = {
    "remember.1": {
        "fewer: the memory repeats itself": {"times": 0.5},
        "about as many: each push moves one": {"times": 1.05},
        "about twice as many": {"times": 2.2},
        "many times as many": {"times": 6.0},
        "none of these": {"times": nan},
    },
    "remember.3": {
        "less than one gradient: the errors cancel": {"held": 0.4},
        "one to a hundred gradients, as with top-k": {"held": 9.0},
        "more than a thousand gradients": {"held": 3e7},
        "none of these": {"held": nan},
    },
}
"""Maps a question and one of its options to values for which that option is the right answer."""

TELLING = {
    "remember.1": ["win again and again", "turn comes", "twice as many"],
    "remember.3": ["grows", "longer than", "without bound", "the remedy", "not a contraction"],
}
"""Maps a question to words that may not appear before its outcome, since they would give the answer away."""

BROKEN = {
    "remember.3": {
        "minips' own": "Mine = ps.ErrorFeedback\n",
        "the class as it was": "Mine = ps.NoMemory\n",
        "inherited": """
@ps.register
@dataclass(frozen=True)
class Mine(ps.ErrorFeedback):
    name = "mine"
""",
        "zeros alone": ("p - sent", "np.where(sent == 0, p, 0 * p)"),
        "not a dataclass": ("@ps.register\n@dataclass(frozen=True)\n", ""),
        "stateless, as it was": ('name = "mine"', 'name = "mine"\n    stateless = True'),
        "nothing is added": ('x + state["error"]', "x"),
        "a share is added": ('x + state["error"]', 'x + 0.9 * state["error"]'),
        "added twice": ('x + state["error"]', 'x + 2 * state["error"]'),
        "added into the gradient": ('x + state["error"]', 'np.add(x, state["error"], out=x)'),
        "in double precision": ('x + state["error"]', 'np.float64(1) * x.astype("f8") + state["error"]'),
        "the old rest comes on top": ("p - sent", 'p - sent + state.get("error", 0)'),
        "a case for signs alone": ("p - sent", "np.where(np.abs(sent) < np.abs(sent).max(), p - sent, 0 * p)"),
        "the wrong way round": ("p - sent", "sent - p"),
        "what was sent": ("p - sent", "sent"),
        "a share of it": ("p - sent", "0.99 * (p - sent)"),
        "only what is large": ("p - sent", "np.where(np.abs(p - sent) > 0.05, p - sent, 0 * p)"),
        "half precision": ("p - sent", "(p - sent).astype(np.float16)"),
        "written into the gradient": ("p - sent", "np.subtract(p, sent, out=p)"),
        "never more than one": ("p - sent", "np.clip(p - sent, -1, 1)"),
        "never more than ten": ("p - sent", "np.clip(p - sent, -10, 10)"),
        "what is too much is lost": ("p - sent", "np.where(np.abs(sent) > np.abs(p), 0 * p, p - sent)"),
        "what has another sign is whole": ("p - sent", "np.where(sent * p < 0, p, p - sent)"),
        "small errors are dropped": ("p - sent", "np.where(np.abs(p - sent) > 1e-8, p - sent, 0 * p)"),
        "written into what was sent": ("p - sent", "np.subtract(p, sent, out=sent)"),
        "in the end single precision": ("p - sent", "(p - sent).astype('f4').astype(p.dtype)"),
        "kept in the class": """
@ps.register
@dataclass(frozen=True)
class Mine(ps.Memory):
    name = "mine"
    kept = {}

    def compensate(self, x, state):
        state.setdefault("number", np.asarray(float(len(self.kept))))
        return x + self.kept.setdefault(float(state["number"]), np.zeros_like(x))

    def update(self, p, sent, state):
        self.kept[float(state["number"])] = p - sent
""",
        "all errors are kept": """
@ps.register
@dataclass(frozen=True)
class Mine(ps.Memory):
    name = "mine"

    def compensate(self, x, state):
        return x + state["error"] if "error" in state else x

    def update(self, p, sent, state):
        state["error"] = p - sent
        state[f"error {len(state)}"] = p - sent
""",
        "forgets at each twentieth": """
@ps.register
@dataclass(frozen=True)
class Mine(ps.Memory):
    name = "mine"

    def compensate(self, x, state):
        return x + state["error"] if "error" in state else x

    def update(self, p, sent, state):
        state["count"] = np.asarray(state.get("count", 0) + 1)
        state["error"] = p - sent if state["count"] % 20 else np.zeros_like(p)
""",
    },
    "remember.2": {
        "nothing added": ("x + memory.get(name, 0)", "x"),
        "a share of it": ("x + memory.get(name, 0)", "x + 0.9 * memory.get(name, 0)"),
        "written into the gradient": (
            "x + memory.get(name, 0)",
            "np.add(x, memory.get(name, 0), out=x)",
        ),
        "what was sent": ("x - sent[name]", "sent[name]"),
        "zeros alone": ("x - sent[name]", "np.where(sent[name] == 0, x, 0 * x)"),
        "the largest is lost": ("x - sent[name]", "np.where(x - sent[name] > 1, 1, x - sent[name])"),
        "one for all": ("name: x - sent[name]", "'W': x - sent[name]"),
        "in double precision": ("x + memory.get(name, 0)", "x + np.float64(1) * memory.get(name, np.zeros(x.shape))"),
        "names that it knows": (
            "{name: x - sent[name] for name, x in compensated.items()}",
            "{name: compensated[name] - sent[name] for name in {*'UVWbcw'} & {*compensated}}",
        ),
        "at most three": ("x - sent[name]", "np.clip(x - sent[name], -3, 3)"),
        "small ones are dropped": (
            "x - sent[name]",
            "np.where(np.abs(x - sent[name]) > 1e-8, x - sent[name], 0 * x)",
        ),
        "written into what was compensated": ("x - sent[name]", "np.subtract(x, sent[name], out=x)"),
        "written into what was sent": ("x - sent[name]", "np.subtract(x, sent[name], out=sent[name])"),
        "written into the memory": """
class Server(Server):
    @staticmethod
    def compensate(tensors, memory):
        for name, x in tensors.items():
            memory[name] = memory.get(name, 0) + x
        return memory

    @staticmethod
    def remember(compensated, sent):
        return {name: x - sent[name] for name, x in compensated.items()}
""",
        "added into the memory's arrays": """
class Server(Server):
    @staticmethod
    def compensate(tensors, memory):
        return {name: np.add(x, memory[name], out=memory[name]) if memory else x for name, x in tensors.items()}

    @staticmethod
    def remember(compensated, sent):
        return {name: x - sent[name] for name, x in compensated.items()}
""",
        "kept in the class": """
class Server(Server):
    kept = {}

    @staticmethod
    def compensate(tensors, memory):
        if not memory:
            Server.kept = {}
        return {name: x + Server.kept.get(name, 0) for name, x in tensors.items()}

    @staticmethod
    def remember(compensated, sent):
        Server.kept = {name: x - sent[name] for name, x in compensated.items()}
        return Server.kept
""",
        "the same arrays again": """
class Server(Server):
    buffers = {}

    @staticmethod
    def compensate(tensors, memory):
        return {name: x + memory.get(name, 0) for name, x in tensors.items()}

    @staticmethod
    def remember(compensated, sent):
        for name, x in compensated.items():
            buffer = Server.buffers.setdefault((name, x.shape, x.dtype), np.zeros_like(x))
            np.subtract(x, sent[name], out=buffer)
        return {name: Server.buffers[name, x.shape, x.dtype] for name, x in compensated.items()}
""",
        "the widest alone": (
            "{name: x - sent[name] for name, x in compensated.items()}",
            "{name: x - sent[name] for name, x in compensated.items() if x.size > 2}",
        ),
    },
}
"""Maps an exercise and an error to a piece of the solution and what replaces it, or to a whole wrong answer."""

RIGHT = {
    "remember.3": {
        "as error feedback does": """
@ps.register
@dataclass(frozen=True)
class Mine(ps.Memory):
    name = "mine"

    def compensate(self, x, state):
        return ps.ErrorFeedback().compensate(x, state)

    def update(self, p, sent, state):
        ps.ErrorFeedback().update(p, sent, state)
""",
        "under another name": """
@ps.register
@dataclass(frozen=True)
class Mine(ps.Memory):
    name = "mine"

    def compensate(self, x, state):
        return np.add(x, state["owed"]) if state else x.copy()

    def update(self, p, sent, state):
        owed = np.array(p)
        owed -= sent
        state["owed"] = owed
""",
    },
    "remember.2": {
        "in loops": """
class Server(Server):
    @staticmethod
    def compensate(tensors, memory):
        compensated = {}
        for name in tensors:
            compensated[name] = tensors[name].copy()
            if name in memory:
                compensated[name] += memory[name]
        return compensated

    @staticmethod
    def remember(compensated, sent):
        memory = {}
        for name in compensated:
            memory[name] = np.array(compensated[name])
            memory[name] -= sent[name]
        return memory
""",
        "nothing to add at first": """
class Server(Server):
    @staticmethod
    def compensate(tensors, memory):
        return {name: np.add(x, memory[name]) for name, x in tensors.items()} if memory else dict(tensors)

    @staticmethod
    def remember(compensated, sent):
        return dict(zip(compensated, map(np.subtract, compensated.values(), (sent[name] for name in compensated))))
""",
    },
}
"""Maps an exercise to right answers that are written differently."""

MUTANT = (
    "error feedback forgets what was not sent",
    "minips/stages/memories/feedback.py",
    'state["error"] = np.asarray(p - sent)',
    'state["error"] = np.zeros_like(p)',
)
"""A memory that forgets what was not sent."""
