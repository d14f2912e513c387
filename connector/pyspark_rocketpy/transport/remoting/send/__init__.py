"""Batches written to a cluster, at-least-once or effectively-once."""
