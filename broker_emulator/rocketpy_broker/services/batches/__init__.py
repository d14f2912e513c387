"""The broker's half of the exactly-once sink: prepared batches, decided and shown once."""
