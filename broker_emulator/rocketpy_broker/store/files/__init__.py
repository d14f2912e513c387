"""The small files of a store, and the only place that creates, renames and removes any file."""
