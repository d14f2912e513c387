"""Limits of requests, and hostile ones."""
