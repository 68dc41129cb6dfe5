"""The lesson "Write a server that waits"."""

from minips_course import gone

__getattr__ = gone(__name__)
