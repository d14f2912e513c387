"""Limits and guards of calls, shared by all protocols."""
