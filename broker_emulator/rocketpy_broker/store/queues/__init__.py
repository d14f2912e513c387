"""Consume queues, derived from the log, and their readers.

Recovery rebuilds from the log what a crash removes from them.
"""
