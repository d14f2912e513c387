"""Tests of slaves that become masters."""
