"""The check of a stopped store: every file against the log.

The check changes no file.
"""
