"""Lets Spark find `format("headrace")` by itself: it looks for top-level packages called pyspark_*."""
