"""Lesson 03: a rule of rounds that waits for nobody."""

MUTANT = (
    "BSP answers every pull at once",
    "minips/stages/consistency.py",
    "return slowest >= clock\n",
    "return True\n",
)
