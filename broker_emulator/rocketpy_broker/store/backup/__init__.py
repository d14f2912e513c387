"""Consistent copies of a store: what goes into one, and the directory that it becomes."""
