"""Benchmarks of the store and the record codec, in process."""
