"""The way of what was appended to the disk, and work on the store's files beside it."""
