"""Spark without jars: a data source and sink, and declared pipelines, over blocking clients of the wire protocol."""
