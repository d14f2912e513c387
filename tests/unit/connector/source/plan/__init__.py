"""Tests of the plan of a batch."""
