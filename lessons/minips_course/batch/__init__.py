"""The lesson "A small batch is an estimate"."""
