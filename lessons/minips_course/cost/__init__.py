"""The lesson "Predict the cost"."""
