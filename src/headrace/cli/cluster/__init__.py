"""`headrace cluster`."""
