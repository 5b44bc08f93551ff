"""The source: what to read (pure rules), and the readers that Spark calls."""
