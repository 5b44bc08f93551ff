"""From a YAML file to a `Pipeline` that knows its lines."""
