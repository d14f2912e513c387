"""Pages of the broker's state."""
