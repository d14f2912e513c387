"""The store: commit log, consume queues, index and recovery.

It has no access to the configuration of topics, nor to gRPC. Every file that must survive a crash
is written by this layer.
"""
