"""Sending back of messages that a group could not consume."""
