"""The lesson "Remember what was not sent"."""
