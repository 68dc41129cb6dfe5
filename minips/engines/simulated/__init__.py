"""The simulated engine: its value in `engine`. The rest is imported when a run begins."""
