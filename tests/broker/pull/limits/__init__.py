"""Limits of pulls and their answers."""
