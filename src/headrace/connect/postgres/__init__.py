"""PostgreSQL: tables captured into topics by logical decoding."""
