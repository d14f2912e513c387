"""Filters of pulls: parser and evaluation of their expressions."""
