"""Servicers of the protocol rocketpy.v1, one for each service."""
