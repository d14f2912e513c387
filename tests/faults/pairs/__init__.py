"""Faults of a master, its slave, and the link between them."""
