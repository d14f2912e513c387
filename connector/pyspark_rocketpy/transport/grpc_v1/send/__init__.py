"""Blocks of messages sent to a broker, and their batches."""
