"""TLS, users, signatures and permissions, for all protocols."""
