"""The console: pages about the broker for a browser, rendered by the server."""
