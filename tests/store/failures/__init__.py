"""Failing calls, and data damaged while the store is open."""
