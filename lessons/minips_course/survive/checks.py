"""The exercises of "Survive a lost answer"."""
