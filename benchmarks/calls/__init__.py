"""Benchmarks of a running broker's calls."""
