"""The lesson "Hide the latency"."""
