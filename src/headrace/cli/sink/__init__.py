"""`headrace sink`."""
