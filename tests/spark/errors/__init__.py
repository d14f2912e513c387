"""Tests of errors as Spark's users see them."""
