"""The simulated engine. The module `engine` holds its stage; the other modules are imported when a run begins."""
