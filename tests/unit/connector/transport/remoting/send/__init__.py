"""Tests of the sink's sends."""
