"""The lesson "Put a deep net under DDP"."""
