"""Commit log, consume queues and recovery. Knows nothing of topics' configuration or gRPC.

Everything that must survive a crash lies in files that this room writes.
"""
