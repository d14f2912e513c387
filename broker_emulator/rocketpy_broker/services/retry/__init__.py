"""Messages that are to be consumed once more, and those that are given up."""
