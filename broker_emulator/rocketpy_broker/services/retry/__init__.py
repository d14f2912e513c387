"""Messages to consume again, and dead letters."""
