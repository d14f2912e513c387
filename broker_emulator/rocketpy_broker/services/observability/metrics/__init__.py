"""Metrics of the broker in Prometheus's format."""
