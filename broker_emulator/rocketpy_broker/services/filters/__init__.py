"""Filters of pulls: what their expressions mean, and which records of a block match."""
