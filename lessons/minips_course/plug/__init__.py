"""The lesson "Pull the plug"."""
