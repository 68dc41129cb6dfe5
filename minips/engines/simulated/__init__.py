"""The simulated engine: its value in `engine`. The rest needs SimPy, and is imported when a run begins."""
