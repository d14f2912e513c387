"""Writing: from rows to blocks of records, and from tasks to a committed batch."""
