"""Blocks of messages on their way to a broker, and messages sent back."""
