"""Pulls of ranges from a cluster, and their offset queries."""
