"""The lesson "Write a server in forty lines"."""
