"""What a Fetch needs beyond its own request: sessions, the plan of what is read and told, and polls that wait."""
