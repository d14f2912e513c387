"""Processors of pop consumption."""
