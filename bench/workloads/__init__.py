"""One file per workload. A new one is a new file here: it registers itself, and the report picks it up."""
