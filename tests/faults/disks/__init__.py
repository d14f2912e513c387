"""Disks that lose power, are full, fail, or are slow."""
