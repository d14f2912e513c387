"""Clients of the broker's protocols: small calls, bulk work and held calls of one shape."""
