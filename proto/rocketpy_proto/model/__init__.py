"""RocketMQ's words once: codes, ids, names and column types."""
