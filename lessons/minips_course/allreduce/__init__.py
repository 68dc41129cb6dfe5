"""The lesson "Add up without a server"."""
