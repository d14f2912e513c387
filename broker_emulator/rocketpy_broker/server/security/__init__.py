"""TLS of the broker's ports."""
