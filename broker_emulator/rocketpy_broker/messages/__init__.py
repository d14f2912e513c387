"""Messages as the client, the commands and the HTTP API show them."""
