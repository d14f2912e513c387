"""TLS of the ports; users, their signatures and their permissions, for all protocols."""
