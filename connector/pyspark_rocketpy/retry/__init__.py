"""Messages that could not be consumed, sent back from Spark."""
