"""Starts Spark and the queries, watches, restarts and stops them."""
