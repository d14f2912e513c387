"""Administration for operators: topics, groups, messages, cleaning, export and import."""
