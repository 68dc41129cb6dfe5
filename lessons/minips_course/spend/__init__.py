"""The lesson "Spend bits where they matter"."""
