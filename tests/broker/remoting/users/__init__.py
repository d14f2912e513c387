"""Requests about users and their permissions."""
