"""Plans of batches: offsets, limits and the division into tasks."""
