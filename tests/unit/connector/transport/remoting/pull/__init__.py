"""Tests of the source's pulls and queries."""
