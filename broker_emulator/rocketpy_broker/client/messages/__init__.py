"""Client calls that send, read and look up messages."""
