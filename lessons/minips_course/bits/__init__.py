"""The lesson "Send fewer bits"."""
