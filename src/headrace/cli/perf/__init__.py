"""`headrace perf`."""
