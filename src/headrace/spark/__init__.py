"""Spark without jars: a data source, a sink and declared pipelines, over blocking clients of the wire protocol."""
