"""Tests of QueryOffsets and SearchOffsets."""
