"""The lesson "See when a memory fails"."""
