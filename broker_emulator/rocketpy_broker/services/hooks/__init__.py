"""Calls to the hooks of installed packages."""
