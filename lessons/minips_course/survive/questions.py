"""The questions, sentences and quiz of "Survive a lost answer"."""
