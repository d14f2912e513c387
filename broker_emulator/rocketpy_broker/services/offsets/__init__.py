"""Offsets of queues and groups: queries, searches by time, and committed offsets."""
