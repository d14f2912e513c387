"""Tests of Spark's processes as clients of a broker."""
