"""The lesson "Squeeze bytes"."""
