"""Tests of staged blocks."""
