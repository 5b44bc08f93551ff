"""`headrace tls`."""
