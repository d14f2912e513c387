"""Tests of the source."""
