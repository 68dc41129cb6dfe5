"""The exercises of "Talk less often"."""
