"""The lesson "Enter the race"."""
