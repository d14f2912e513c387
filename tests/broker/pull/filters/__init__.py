"""Pulls by tag and expression, and searches by key."""
