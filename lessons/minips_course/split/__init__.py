"""The lesson "Split a gradient"."""
