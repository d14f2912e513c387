"""Topics: their configuration, queues and permissions."""
