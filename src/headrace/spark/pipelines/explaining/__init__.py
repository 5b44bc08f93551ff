"""What Spark raises, as sentences with a place in the user's file."""
