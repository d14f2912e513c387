"""Records by key, rebuilt from the log after a crash."""
