"""Messages for consumers, and the bounds of their requests."""
