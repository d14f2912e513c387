"""What tasks have staged for batches that are not decided, or not stored yet."""
