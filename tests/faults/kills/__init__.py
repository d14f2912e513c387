"""Kills of a broker or a store, and what is left."""
