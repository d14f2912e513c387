"""Tests of the console in Chromium."""
