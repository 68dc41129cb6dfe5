"""The lesson "Survive a lost answer"."""
