"""Records in blocks, as columns, without a loop over messages."""
