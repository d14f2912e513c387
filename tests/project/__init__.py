"""Tests about the project itself: its style, documents, packages and programs."""
