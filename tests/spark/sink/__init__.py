"""Tests of the sink that delivers at least once."""
