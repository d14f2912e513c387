"""Long polling: calls and tasks that wait for messages in queues."""
