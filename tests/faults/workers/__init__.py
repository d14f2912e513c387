"""Worker processes and their programs."""
