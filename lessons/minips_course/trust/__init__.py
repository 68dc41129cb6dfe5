"""The lesson "Trust nobody"."""
