"""`headrace topic`."""
