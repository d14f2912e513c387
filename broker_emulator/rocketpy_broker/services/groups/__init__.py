"""Subscription groups: their configuration, members and queue locks."""
