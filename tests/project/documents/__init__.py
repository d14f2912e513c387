"""Documents, compared with code and tests."""
