"""Test cases for "See when a memory fails": for its questions, its exercises and a claim."""

from math import nan

OUTCOMES = {
    "fails.1": {
        "about t, for each curvature": {"flat": 0.98, "steep": 0.98},
        "about t/λ": {"flat": 4.98, "steep": 0.18},
        "about λ · t": {"flat": 0.2, "steep": 4.9},
        "about one step, 0.1 · t, for each curvature": {"flat": 0.09, "steep": 0.08},
        "none of these": {"flat": nan, "steep": 0.98},
    },
    "fails.2": {
        "not at all": {"share": 0.0},
        "one step: 0.05, about a hundredth of its way": {"share": 0.01},
        "as far as t = 0.5, about a tenth of its way": {"share": 0.1},
        "by more than half of its way": {"share": 0.83},
        "none of these": {"share": nan},
    },
}
"""Maps a question and one of its options to values for which that option is the right answer."""

TELLING = {
    "fails.1": ["divided by the curvature", "t / λ", "the steeper", "λw is below"],
    "fails.2": ["wind-up", "winds up", "piles up", "overshoot"],
}
"""Maps a question to words that may not appear before its outcome, since they would give the answer away."""

_HEAD = """
@ps.register
@dataclass(frozen=True)
class Bounded(ps.ErrorFeedback):
    name = "bounded"
    limit: float = ps.option(1.0, "the most that is held of a value", minimum=0.1, maximum=10, step=0.1)
"""
_DIFFERENCE = """
@ps.register
@dataclass(frozen=True)
class Difference(ps.Memory):
    name = "difference"
"""
_KEEP = "kept = np.clip(rest, -self.limit, self.limit)"
_LOST = 'state.get("lost", 0 * p) + rest - kept'
BROKEN = {
    "fails.1": {
        "as given": _HEAD
        + """
    def update(self, p, sent, state):
        state["error"] = p - sent
""",
        "not bounded": (_KEEP, "kept = rest"),
        "bounded above alone": (_KEEP, "kept = np.minimum(rest, self.limit)"),
        "nothing is held beyond": (_KEEP, "kept = np.where(np.abs(rest) <= self.limit, rest, 0 * rest)"),
        "the default limit": (_KEEP, "kept = np.clip(rest, -1, 1)"),
        "one limit for all values": (_KEEP, "kept = rest * min(1, self.limit / max(np.abs(rest).max(), 1e-30))"),
        "the length is bounded": (_KEEP, "kept = rest * min(1, self.limit / max(np.linalg.norm(rest), 1e-30))"),
        "half of the limit": (_KEEP, "kept = np.clip(rest, -self.limit / 2, self.limit / 2)"),
        "a little more than the limit": (_KEEP, "kept = np.clip(rest, -1.01 * self.limit, 1.01 * self.limit)"),
        "the share of it": (_KEEP, "kept = 0.9 * np.clip(rest, -self.limit, self.limit)"),
        "what is to be sent is bounded": (_KEEP, "kept = np.clip(p, -self.limit, self.limit) - sent"),
        "nothing is kept": (_KEEP, "kept = 0 * rest"),
        "in single precision": (_KEEP, "kept = np.clip(rest, -self.limit, self.limit).astype('f4')"),
        "only the last loss": (_LOST, "rest - kept"),
        "no loss": ('state["lost"] = ' + _LOST, "pass"),
        "the loss has the other sign": (_LOST, 'state.get("lost", 0 * p) - rest + kept'),
        "the size of the loss": (_LOST, 'state.get("lost", 0 * p) + np.abs(rest - kept)'),
        "what is held is lost": (_LOST, 'state.get("lost", 0 * p) + rest'),
        "the loss of all values": (_LOST, 'state.get("lost", 0 * p) + (rest - kept).sum()'),
        "written into what was compensated": ("rest = p - sent", "rest = np.subtract(p, sent, out=p)"),
        "written into what was sent": ("rest = p - sent", "rest = np.subtract(p, sent, out=sent)"),
        "the wrong way round": ("rest = p - sent", "rest = sent - p"),
    },
    "fails.2": {
        "minips' own": "Difference = ps.Delta\n",
        "inherited": """
@ps.register
@dataclass(frozen=True)
class Difference(ps.Delta):
    name = "difference"
""",
        "as given": _DIFFERENCE
        + """
    def compensate(self, x, state):
        return x

    def update(self, p, sent, state):
        pass

    def restore(self, received, state):
        return received
""",
        "knows what was meant": ('state.get("known", 0) + sent', 'state.get("known", 0) + p'),
        "knows the last difference": ('state.get("known", 0) + sent', "sent + 0"),
        "the wrong way round": ('x - state.get("known", 0)', 'state.get("known", 0) - x'),
        "nothing is subtracted": ('x - state.get("known", 0)', "x + 0"),
        "added as feedback is": ('x - state.get("known", 0)', 'x + state.get("known", 0)'),
        "a share is subtracted": ('x - state.get("known", 0)', 'x - 0.9 * state.get("known", 0)'),
        "not a copy": ('state["known"].copy()', 'state["known"]'),
        "only what was received": ('state["known"].copy()', "received.copy()"),
        "the receiver adds twice": ('state["known"].copy()', 'state["known"] + received'),
        "added into the known": (
            'state["known"] = state.get("known", 0) + sent',
            'known = state.setdefault("known", 0 * sent)\n        known += sent',
        ),
        "what was sent itself": (
            'state["known"] = state.get("known", 0) + sent',
            'state["known"] = state["known"] + sent if "known" in state else sent',
        ),
        "small differences are dropped": (
            'state["known"] = state.get("known", 0) + sent',
            'state["known"] = state.get("known", 0) + np.where(np.abs(sent) > 0.05, sent, 0 * sent)',
        ),
    },
}
"""Maps an exercise and an error to a piece of the solution and what replaces it, or to a whole wrong answer."""

RIGHT = {
    "fails.1": {
        "in loops of minimum and maximum": _HEAD
        + """
    def update(self, p, sent, state):
        rest = p - sent
        kept = np.maximum(np.minimum(rest, self.limit), -self.limit)
        lost = rest - kept
        if "lost" in state:
            lost = lost + state["lost"]
        state.update(error=kept, lost=lost)
""",
        "by what goes beyond": _HEAD
        + """
    def update(self, p, sent, state):
        super().update(p, sent, state)
        over = np.sign(state["error"]) * np.maximum(np.abs(state["error"]) - self.limit, 0)
        over = over.astype(p.dtype)
        state["error"] = state["error"] - over
        state["lost"] = over if "lost" not in state else np.add(state["lost"], over)
""",
    },
    "fails.2": {
        "under another name": _DIFFERENCE
        + """
    def compensate(self, x, state):
        return np.subtract(x, state["theirs"]) if state else x.copy()

    def update(self, p, sent, state):
        state["theirs"] = np.add(state["theirs"], sent) if state else np.array(sent)

    def restore(self, received, state):
        self.update(None, received, state)
        return np.array(state["theirs"])
""",
        "by minips' own": _DIFFERENCE
        + """
    def compensate(self, x, state):
        return ps.Delta().compensate(x, state)

    def update(self, p, sent, state):
        ps.Delta().update(p, sent, state)

    def restore(self, received, state):
        return ps.Delta().restore(received, state)
""",
    },
}
"""Maps an exercise to right answers that are written differently."""

MUTANT = (
    "the memory of differences forgets what the receiver knows",
    "minips/stages/memories/feedback.py",
    'state["known"] = np.asarray(state["known"] + sent) if "known" in state else sent.copy()',
    'state["known"] = sent.copy()',
)
"""A memory whose ends know only the last difference."""
