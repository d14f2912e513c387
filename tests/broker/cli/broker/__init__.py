"""Commands about a broker and its store."""
