"""Export of a store's messages to Arrow or Parquet files."""
