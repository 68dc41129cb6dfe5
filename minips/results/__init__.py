"""The results of a run: spans, status, the run itself, and its files. The core uses spans, files and status."""
