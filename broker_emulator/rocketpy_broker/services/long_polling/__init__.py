"""Calls and tasks that wait for something to arrive in a queue."""
