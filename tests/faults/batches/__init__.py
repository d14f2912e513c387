"""Faults at any moment of a batch."""
