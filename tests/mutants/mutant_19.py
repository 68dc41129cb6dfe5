"""Lesson 19: links that carry twice as much as they can."""

MUTANT = (
    "the simulated links carry twice their bandwidth",
    "minips/engines/simulated/flows.py",
    "self._rate = fair_shares(self._edges, self._capacity)",
    "self._rate = 2 * fair_shares(self._edges, self._capacity)",
)
