"""Runs: train, resume, sweep, by hand; on any engine."""
