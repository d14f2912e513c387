"""From what a crash left to a store that serves.

Every pass may be interrupted and run again with the same outcome.
"""
