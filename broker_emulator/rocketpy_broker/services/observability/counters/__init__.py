"""Counters of events by topic and group."""
