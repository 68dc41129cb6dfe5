"""The lesson "Mend a lecture's server"."""
