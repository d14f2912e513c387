"""Subscription groups: which there are and how each one consumes."""
