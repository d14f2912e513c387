"""Offsets of queues and groups: queries, searches by time, and what groups have committed."""
