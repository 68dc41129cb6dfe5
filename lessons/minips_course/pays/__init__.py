"""The lesson "Where compression pays"."""
