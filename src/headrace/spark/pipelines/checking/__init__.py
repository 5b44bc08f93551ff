"""Finds what is wrong with a pipeline before it runs."""
