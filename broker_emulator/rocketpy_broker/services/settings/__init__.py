"""The configuration of a running broker, and its changes by operators."""
