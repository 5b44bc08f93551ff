"""Files of a directory that is watched, each read once."""
