"""Commands for messages and transactions."""
