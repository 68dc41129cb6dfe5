"""The lesson "Do without a server"."""
