"""Directories that our store and RocketMQ's both use."""
