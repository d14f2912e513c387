"""Users, their signatures and their permissions, shared by all protocols."""
