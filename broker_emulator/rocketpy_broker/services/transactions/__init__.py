"""Transactions: half messages, their commit or rollback, and their checks."""
