"""The lesson "Hide and survive"."""
