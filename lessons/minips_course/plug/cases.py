"""Test cases for "Pull the plug": for its questions, its exercises and a claim."""

OUTCOMES = {
    "plug.1": {
        "20 each: those of worker 3": {"bsp": 20, "asp": 20, "ring": 20},
        "BSP 20, ASP none, the ring 80": {"bsp": 20, "asp": 0, "ring": 80},
        "BSP 80, ASP 20, the ring 80": {"bsp": 80, "asp": 20, "ring": 80},
        "BSP all 160, ASP none, the ring 20": {"bsp": 160, "asp": 0, "ring": 20},
        "none of these": {"bsp": 20, "asp": 5, "ring": 160},
    },
    "plug.2": {
        "40: those since the snapshot": {"again": 40},
        "4: those of the last clock": {"again": 4},
        "140: all so far": {"again": 140},
        "none": {"again": 0},
        "none of these": {"again": 17},
    },
}
"""Maps a question and one of its options to values for which that option is the right answer."""

TELLING = {
    "plug.1": ["its own 20", "makes the missing", "let go of", "was to come"],
    "plug.2": ["no gradient", "from its journal", "applies the journal", "again none"],
}
"""Maps a question to words that may not appear before its outcome, since they would give the answer away."""

FIRST = "if clock > self.last[worker]:"
DUE = "self.due -= {to for to, _ in answers}"
AGAIN = 'elif worker not in self.due:\n            answers = [(worker, ("applied", {}))]'

BROKEN = {
    "plug.1": {
        "as it was": """
class Server(Server):
    def deliver(self, worker, clock, message):
        return self.handle(worker, message)
""",
        "remembers in a global variable": """
counted = {}


class Server(Server):
    def deliver(self, worker, clock, message):
        if message[0] == "push" and counted.get(worker, -1) >= clock:
            return [(worker, ("applied", {}))]
        if message[0] == "push":
            counted[worker] = clock
        return self.handle(worker, message)
""",
        "remembers in the class": """
class Server(Server):
    last = {}

    def deliver(self, worker, clock, message):
        if message[0] == "push" and self.last.get(worker, -1) >= clock:
            return [(worker, ("applied", {}))]
        if message[0] == "push":
            self.last[worker] = clock
        return self.handle(worker, message)
""",
        "answers a repeated push at once": ("elif worker not in self.due:", "else:"),
        "never answers a repeated push": (AGAIN, "else:\n            pass"),
        "knows a push by its gradients": """
class Server(Server):
    def __init__(self, params, workers, lr):
        super().__init__(params, workers, lr)
        self.last, self.due = [None] * workers, set()

    def deliver(self, worker, clock, message):
        if message[0] == "pull":
            return self.handle(worker, message)
        answers, content = [], b"".join(g.tobytes() for g in message[1].values())
        if content != self.last[worker]:
            self.last[worker] = content
            self.due.add(worker)
            answers = self.handle(worker, message)
        elif worker not in self.due:
            answers = [(worker, ("applied", {}))]
        self.due -= {to for to, _ in answers}
        return answers
""",
        "one clock for all workers": ("self.last[worker]:", "max(self.last):"),
        "forgets whom it has answered through another's push": (
            DUE,
            "self.due -= {worker} & {to for to, _ in answers}",
        ),
        "answers a repeated pull like a push": """
class Server(Server):
    def __init__(self, params, workers, lr):
        super().__init__(params, workers, lr)
        self.last, self.due = {}, set()

    def deliver(self, worker, clock, message):
        answers, what = [], (worker, message[0])
        if clock > self.last.get(what, -1):
            self.last[what] = clock
            self.due.add(worker)
            answers = self.handle(worker, message)
        elif worker not in self.due:
            answers = [(worker, ("applied", {}))]
        self.due -= {to for to, _ in answers}
        return answers
""",
        "begins with clock 1": ("[-1] * workers", "[0] * workers"),
        "answers the others again, too": (
            'answers = [(worker, ("applied", {}))]',
            'answers = [(one, ("applied", {})) for one in range(self.workers) if one not in self.due]',
        ),
        "answers with another word": ('answers = [(worker, ("applied", {}))]', 'answers = [(worker, ("again", {}))]'),
        "keeps each push": (
            "            self.last[worker] = clock\n",
            "            self.last[worker] = clock\n"
            "            self.all = [*getattr(self, 'all', []), (worker, clock)]\n",
        ),
        "counts every second time": (FIRST, "if clock > self.last[worker] or clock % 2 and worker in self.due:"),
        "for the first three workers": (FIRST, "if clock > self.last[worker] or worker > 2:"),
        "what is due is no attribute": """
due = set()


class Server(Server):
    def __init__(self, params, workers, lr):
        super().__init__(params, workers, lr)
        self.last = [-1] * workers
        due.clear()

    def deliver(self, worker, clock, message):
        if message[0] == "pull":
            return self.handle(worker, message)
        answers = []
        if clock > self.last[worker]:
            self.last[worker] = clock
            due.add(worker)
            answers = self.handle(worker, message)
        elif worker not in due:
            answers = [(worker, ("applied", {}))]
        due.difference_update(to for to, _ in answers)
        return answers
""",
        "refuses a repeated push": (AGAIN, 'else:\n            raise ValueError("This push was counted.")'),
        "the old answers again": """
class Server(Server):
    def __init__(self, params, workers, lr):
        super().__init__(params, workers, lr)
        self.last, self.said = [-1] * workers, [[] for _ in range(workers)]

    def deliver(self, worker, clock, message):
        if message[0] == "pull":
            return self.handle(worker, message)
        if clock > self.last[worker]:
            self.last[worker] = clock
            self.said[worker] = self.handle(worker, message)
        return self.said[worker]
""",
    },
    "plug.2": {
        "always": """
def holds(history):
    return True
""",
        "never": """
def holds(history):
    return False
""",
        "by the last clock": """
def holds(history):
    last = {}
    for what, worker, clock in history:
        if what == "kept" and last.get(worker, -1) >= clock or what == "acknowledged" and last.get(worker) != clock:
            return False
        if what == "kept":
            last[worker] = clock
    return True
""",
        "by numbers alone": """
def holds(history):
    kept = [event for event in history if event[0] == "kept"]
    acknowledged = {event for event in history if event[0] == "acknowledged"}
    return len(kept) == len({*kept}) and len(acknowledged) <= len(kept)
""",
        "in whatever order": """
def holds(history):
    kept = [push for what, *push in history if what == "kept"]
    acknowledged = [push for what, *push in history if what == "acknowledged"]
    return all(kept.count(push) == 1 for push in kept) and all(push in kept for push in acknowledged)
""",
        "what is kept has an answer": """
def holds(history):
    kept = [push for what, *push in history if what == "kept"]
    acknowledged = [push for what, *push in history if what == "acknowledged"]
    return all(kept.count(push) == 1 for push in kept) and sorted(kept) == sorted(acknowledged)
""",
        "without repetitions of what is kept": (
            '        if what == "kept" and (*push,) in kept:\n            return False\n',
            "",
        ),
        "without acknowledgements": (
            '        if what == "acknowledged" and (*push,) not in kept:\n            return False\n',
            "",
        ),
        "one acknowledgement each": (
            '        if what == "kept":\n            kept.add((*push,))\n',
            '        if what == "kept":\n            kept.add((*push,))\n'
            '        if what == "acknowledged":\n            kept.discard((*push,))\n',
        ),
        "sent once": ('if what == "kept" and (*push,) in kept:', 'if what in ("kept", "sent") and (*push,) in kept:'),
        "by clock": ("for what, *push in history:", "for what, _, *push in history:"),
        "by worker": ("for what, *push in history:", "for what, *push, _ in history:"),
        "a death empties the journal": (
            '        if what == "kept":\n            kept.add((*push,))\n',
            '        if what == "kept":\n            kept.add((*push,))\n'
            '        if what == "killed":\n            kept = set()\n',
        ),
        "returns a word": ("return True", 'return "it holds"'),
        "changes the history": ("    return True\n", "    history.clear()\n    return True\n"),
        "the last event alone": ("for what, *push in history:", "for what, *push in history[-1:]:"),
        "in the clocks' order": (
            '        if what == "kept":\n            kept.add((*push,))\n',
            '        if what == "kept":\n'
            "            if kept and push[1] < max(clock for _, clock in kept):\n"
            "                return False\n"
            "            kept.add((*push,))\n",
        ),
    },
}
"""Maps an exercise and an error to a piece of the solution and what replaces it, or to a whole wrong answer."""

RIGHT = {
    "plug.1": {
        "a pair for each worker": """
class Server(Server):
    def __init__(self, params, workers, lr):
        super().__init__(params, workers, lr)
        self.known = {worker: (-1, True) for worker in range(workers)}  # the clock, and whether it was answered

    def deliver(self, worker, clock, message):
        kind = message[0]
        last, answered = self.known[worker]
        if kind == "push" and clock == last:
            return [(worker, ("applied", {}))] if answered else []
        if kind == "push":
            self.known[worker] = (clock, False)
        answers = self.handle(worker, message)
        for to, (said, _) in answers:
            if said == "applied":
                self.known[to] = (self.known[to][0], True)
        return answers
""",
        "clocks of pushes and of answers": """
class Server(Server):
    def __init__(self, params, workers, lr):
        super().__init__(params, workers, lr)
        self.pushed, self.answered = [0] * workers, [0] * workers

    def deliver(self, worker, clock, message):
        again = message[0] == "push" and clock < self.pushed[worker]
        if again and self.answered[worker] < self.pushed[worker]:
            return []
        answers = [(worker, ("applied", {}))] if again else self.handle(worker, message)
        if message[0] == "push" and not again:
            self.pushed[worker] += 1
        for to, (said, _) in answers:
            self.answered[to] = self.pushed[to] if said == "applied" else self.answered[to]
        return answers
""",
    },
    "plug.2": {
        "at each acknowledgement": """
def holds(history):
    for at, (what, worker, clock) in enumerate(history):
        before = history[:at].count(("kept", worker, clock))
        if what == "kept" and before or what == "acknowledged" and before != 1:
            return False
    return True
""",
        "by first places": """
def holds(history):
    places = {}
    for at, event in enumerate(history):
        places.setdefault(event, []).append(at)
    for (what, worker, clock), at in places.items():
        kept = places.get(("kept", worker, clock), [])
        if len(kept) > 1:
            return False
        if what == "acknowledged" and (not kept or kept[0] > at[0]):
            return False
    return True
""",
    },
}
"""Maps an exercise to right answers that are written differently."""

MUTANT = (
    "a server in rounds never lets go of a dead worker",
    "minips/core/shard.py",
    "(arrived < self.quorum and not self.live <= self._held.keys())",
    "(arrived < self.quorum)",
)
"""Under BSP, the others wait for a worker that is lost."""
