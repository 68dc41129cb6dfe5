"""The lesson "Wait, or don't"."""
