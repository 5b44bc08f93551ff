"""Exactly once: batches of a stream that are written by tasks, decided by the driver, and committed together."""
