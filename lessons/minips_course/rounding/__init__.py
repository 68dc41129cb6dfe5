"""The lesson "Round at random"."""
