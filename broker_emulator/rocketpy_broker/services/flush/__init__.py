"""Flushes of the commit log, and background work on the store's files."""
