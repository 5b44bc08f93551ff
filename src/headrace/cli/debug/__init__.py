"""`headrace debug`."""
