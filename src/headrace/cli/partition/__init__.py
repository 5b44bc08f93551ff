"""`headrace partition`."""
