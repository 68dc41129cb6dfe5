"""Views: pictures that move in the page. Python makes their data and their words; a JavaScript file draws them."""

from minips.lab.views.base import View, format_bytes, format_seconds

__all__ = ["View", "format_bytes", "format_seconds"]
