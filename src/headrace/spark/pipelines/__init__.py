"""Declared pipelines: a YAML file becomes Spark queries that are checked, run, watched and stopped."""
