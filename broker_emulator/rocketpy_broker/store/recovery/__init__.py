"""Recovery of a store after a crash.

Every pass may be interrupted and repeated with the same result.
"""
