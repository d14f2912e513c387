"""Transports to a broker: a common interface, a folder for each protocol."""
