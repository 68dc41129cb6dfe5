"""The lesson "Move frames"."""
