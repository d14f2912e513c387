"""Blocks of records as columns, without a loop over messages."""
