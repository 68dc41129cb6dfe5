"""The lesson "A deep net under DDP"."""
