"""RocketMQ's codes, ids, names and column types."""
