"""Requests of this project's slaves to their master."""
