"""Processors of users and ACLs."""
