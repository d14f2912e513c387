"""Runs of these tests."""
