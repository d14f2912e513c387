"""Handovers of whole directories between brokers."""
