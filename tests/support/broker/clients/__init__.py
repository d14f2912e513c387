"""Clients of brokers for tests."""
