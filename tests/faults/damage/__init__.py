"""Damaged files of a store."""
