"""The console's pages, by subject."""
