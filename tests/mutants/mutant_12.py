"""Lesson 12: a worker that waits for each answer, with overlap too."""

MUTANT = (
    "a worker waits for each answer, with overlap too",
    "minips/core/loop.py",
    "        if overlap:\n            travelling = yield Begin(push_pull)\n",
    "        if False:\n            travelling = yield Begin(push_pull)\n",
)
