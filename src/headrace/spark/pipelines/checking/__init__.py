"""Finds mistakes in a pipeline before it runs."""
