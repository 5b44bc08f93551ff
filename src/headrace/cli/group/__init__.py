"""`headrace group`."""
