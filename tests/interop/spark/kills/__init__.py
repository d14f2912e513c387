"""Killed drivers, tasks and servers."""
