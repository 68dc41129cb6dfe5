"""The lesson "Talk less often"."""
