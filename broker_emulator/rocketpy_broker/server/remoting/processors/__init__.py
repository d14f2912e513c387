"""Processors of a broker's remoting requests, by subject."""
