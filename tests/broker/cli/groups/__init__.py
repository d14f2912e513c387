"""Commands about groups and clients."""
