"""Ranges read from a cluster, and the offsets that plan them."""
