"""The lesson "Train in a minute"."""
