"""What comes out of a run: spans, status, the run itself, and files of it. The core uses spans, files and status."""
