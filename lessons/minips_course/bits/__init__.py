"""The lesson "Send fewer bits"."""

from minips_course import gone

__getattr__ = gone(__name__)
