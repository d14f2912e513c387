"""Receives and pulls of consumers: requests and returned messages."""
