"""`headrace txn`."""
