"""Deliveries to clients that acknowledge by handles: renewals, and the end of all attempts."""
