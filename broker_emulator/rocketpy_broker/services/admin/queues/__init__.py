"""Queues for RocketMQ's tools: the progress of groups, and units."""
