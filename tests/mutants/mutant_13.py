"""Lesson 13: a server that applies a repeated push again."""

MUTANT = (
    "a push is new each time that it comes",
    "minips/core/shard.py",
    "return clock == at or clock in self._missed[worker]",
    "return clock <= at",
)
