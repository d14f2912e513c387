"""Sent messages: their rules, their records, and the queues of message groups."""
