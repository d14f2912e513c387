"""Calls of the client that send, read and look up messages."""
