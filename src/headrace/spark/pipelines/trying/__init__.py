"""Pipelines before they run: a first file from a topic's records, rows of any step, tests without a broker.

Nothing here writes to a topic or keeps a checkpoint. Steps are compiled as in a run, over batches, not streams.
"""
