"""Tests of queries whose output is exact."""
