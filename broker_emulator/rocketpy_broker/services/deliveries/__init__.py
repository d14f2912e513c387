"""Deliveries to clients that acknowledge by handles."""
