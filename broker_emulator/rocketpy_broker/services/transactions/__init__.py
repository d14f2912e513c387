"""Transactions: half messages that are committed, rolled back, or asked after until they are."""
