"""Which records make up a queue, and reading them.

Queues are derived: what a crash takes of them is rebuilt from the log.
"""
