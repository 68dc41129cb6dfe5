"""What a run is: train, resume, sweep, by hand; on any engine."""
