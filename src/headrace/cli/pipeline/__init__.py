"""`headrace pipeline`."""
