"""What can be wrong with a pipeline, found before it runs."""
