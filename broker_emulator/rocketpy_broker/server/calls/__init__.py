"""Limits and guards of calls that every protocol shares."""
