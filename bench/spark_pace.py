"""What a process that runs Spark prints before each measured run; it then waits for a line on standard input."""

READY = "ready?"
