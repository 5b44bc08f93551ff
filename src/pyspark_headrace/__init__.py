"""Lets Spark find `format("headrace")` by itself: it looks for top-level packages called pyspark_*.

Spark imports this whenever any Python data source is asked for, so an import that fails would break the others
too: nothing here needs more than PySpark.
"""

from headrace.spark.datasource import HeadraceDataSource as DefaultSource

__all__ = ["DefaultSource"]
