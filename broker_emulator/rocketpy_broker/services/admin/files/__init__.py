"""Export and import of a store's messages as Arrow or Parquet files."""
