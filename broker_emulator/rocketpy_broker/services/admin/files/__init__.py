"""Messages of a store as CSV and JSON files: export and import."""
