"""Lesson 06: a worker that waits for each answer, with overlap too."""

MUTANT = (
    "a worker waits for each answer, with overlap too",
    "minips/engines/worker.py",
    "        if not config.overlap:\n",
    "        if True:\n",
)
