"""`headrace user`."""
