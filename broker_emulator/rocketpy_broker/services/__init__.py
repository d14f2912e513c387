"""Broker services: topics, offsets, appends and pulls, without gRPC.

Services write the configuration files; the store writes the messages.
"""
