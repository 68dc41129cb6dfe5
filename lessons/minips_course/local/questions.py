"""The questions, sentences and quiz of "Talk less often"."""
