"""LocalBroker's calls by subject, and their way out of a forked process. Holds no state."""
