"""The lesson "Put arrays on a wire"."""
