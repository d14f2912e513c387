"""Pulls, key lookups, and sizes of offset ranges."""
