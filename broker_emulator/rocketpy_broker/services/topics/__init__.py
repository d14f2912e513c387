"""Topics: which there are, their queues and permissions."""
