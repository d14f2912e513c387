"""What operators ask and order: topics, single messages, cleaning, export and import."""
