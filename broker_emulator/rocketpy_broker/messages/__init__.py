"""Messages as users see them, for the client, the commands and the HTTP API."""
