"""What the bytes of a record mean: JSON, CSV, text, Avro and raw, from values to columns and back."""
