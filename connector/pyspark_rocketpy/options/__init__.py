"""Options of source and sink: tables and parsing."""
