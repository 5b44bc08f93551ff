"""Topics kept as Parquet files, and put back from them."""
