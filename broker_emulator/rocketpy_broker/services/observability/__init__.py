"""Metrics for Prometheus and RocketMQ's statistics."""
