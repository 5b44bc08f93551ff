"""`headrace connector`."""
