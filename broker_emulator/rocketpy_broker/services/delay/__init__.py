"""Delayed messages: delay levels, delivery times and their progress."""
