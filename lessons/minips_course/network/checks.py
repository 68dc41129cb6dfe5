"""The exercises of "Match a schedule to a network"."""
