"""The small files of a store.

Only this folder creates, renames and removes files of the store.
"""
