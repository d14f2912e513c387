"""Calling hooks of installed packages."""
