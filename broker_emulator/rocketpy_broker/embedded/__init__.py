"""LocalBroker, its calls by subject, and calls of forked processes."""
