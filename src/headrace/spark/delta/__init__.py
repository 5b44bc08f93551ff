"""Delta tables for Spark without jars: written and read by Python, exactly once by the table's own log."""
