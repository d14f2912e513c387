"""RocketMQ's statistics by topic and group: last minute, hour and day."""
