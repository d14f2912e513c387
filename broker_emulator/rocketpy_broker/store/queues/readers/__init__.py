"""Readers of queues: ranges, single messages and look-ups."""
