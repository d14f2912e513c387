"""Tests of slaves."""
