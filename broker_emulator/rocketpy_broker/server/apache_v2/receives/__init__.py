"""Receives and pulls of consumers: their requests, and the messages that they return."""
