"""A small blocking client for Spark's Python workers, which have no event loop and are forked."""
