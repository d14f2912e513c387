"""Pulls of consumer groups: what they make, commit and tell beside what they read."""
