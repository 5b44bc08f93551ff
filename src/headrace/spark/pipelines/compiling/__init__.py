"""From a `Pipeline` to Spark's streaming queries."""
