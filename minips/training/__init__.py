"""Runs on any engine: train, resume, sweep, or start by hand."""
