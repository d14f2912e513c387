"""Tests of what every call passes."""
