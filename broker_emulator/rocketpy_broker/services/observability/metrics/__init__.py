"""What the broker measures, in Prometheus's format."""
