"""The questions, sentences and quiz of "Match a schedule to a network"."""
