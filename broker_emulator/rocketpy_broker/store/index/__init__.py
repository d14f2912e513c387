"""Records by key. Derived: what a crash takes of it is rebuilt from the log."""
