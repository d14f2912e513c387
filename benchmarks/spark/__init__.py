"""Benchmarks of the connector in Spark."""
