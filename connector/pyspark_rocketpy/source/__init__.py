"""Reading: from options and offsets to tasks, and from records to Arrow batches."""
