"""The lesson "Meet a real network"."""
