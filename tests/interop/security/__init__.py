"""RocketMQ's clients and tools, unmodified, with access keys at a broker with users."""
