"""Histories of what clients saw, and their judge."""
