"""What the commands share: options, output, errors, a session with a cluster."""
