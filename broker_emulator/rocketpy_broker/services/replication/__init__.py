"""Replication of the log to slaves: the state of a master's slaves, and waits for them."""
