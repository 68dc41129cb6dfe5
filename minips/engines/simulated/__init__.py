"""The simulated engine. `engine` has its stage; the other modules are imported when a run begins."""
