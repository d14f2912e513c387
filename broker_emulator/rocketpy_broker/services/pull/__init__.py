"""Pulls, the calls that wait for messages, and how far ranges of queues reach."""
