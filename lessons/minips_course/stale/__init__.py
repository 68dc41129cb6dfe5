"""The lesson "Learn from old gradients"."""
