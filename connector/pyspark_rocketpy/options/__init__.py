"""The options of source and sink: one table, and its parsing."""
