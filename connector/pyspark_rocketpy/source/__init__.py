"""Source: from options and offsets to tasks and Arrow batches."""
