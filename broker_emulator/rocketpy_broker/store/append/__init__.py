"""Appends of blocks: offsets, timestamps and marks of batches."""
