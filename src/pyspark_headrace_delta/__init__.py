"""Lets Spark find `format("headrace_delta")` by itself, as `pyspark_headrace` does for `format("headrace")`.

Nothing here needs more than PySpark.
"""

from headrace.spark.delta.datasource import DeltaDataSource as DefaultSource

__all__ = ["DefaultSource"]
