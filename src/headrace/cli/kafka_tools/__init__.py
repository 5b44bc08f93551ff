"""Kafka's own tools, with their flags and their output."""
