"""The lesson "Write a server that waits"."""
