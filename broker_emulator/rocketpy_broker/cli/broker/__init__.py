"""Commands for a broker and for its directory."""
