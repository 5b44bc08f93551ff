"""The sink: rows of a frame become records, by idempotent producers."""
