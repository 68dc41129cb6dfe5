"""The lesson "Match a schedule to a network"."""
