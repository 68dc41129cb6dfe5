"""Lesson 10: a memory that forgets."""

MUTANT = (
    "error feedback forgets what was not sent",
    "minips/stages/memories/feedback.py",
    'state["error"] = np.asarray(p - sent)',
    'state["error"] = np.zeros_like(p)',
)
