"""The lesson "Open a stranger's bytes"."""
