"""Replication of the log: a master's slaves, and waits for them."""
