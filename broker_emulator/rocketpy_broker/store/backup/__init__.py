"""Consistent copies of a store: their content and their target directory."""
