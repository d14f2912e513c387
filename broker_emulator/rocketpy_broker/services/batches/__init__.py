"""Batches of the exactly-once sink, decided and made visible once."""
