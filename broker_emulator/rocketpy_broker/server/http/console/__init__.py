"""The console: pages about the broker, rendered by the server."""
