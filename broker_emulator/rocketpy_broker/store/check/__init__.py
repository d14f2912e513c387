"""Comparing a store that nobody serves: every file against its log. Changes nothing."""
