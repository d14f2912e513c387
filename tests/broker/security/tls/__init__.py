"""Tests of TLS."""
