"""A broker on this machine: start, stop, status, its settings and files."""
