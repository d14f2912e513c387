"""Aliases for commands and options of RocketMQ's mqadmin."""
