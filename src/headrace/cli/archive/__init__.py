"""`headrace archive` and `headrace replay`."""
