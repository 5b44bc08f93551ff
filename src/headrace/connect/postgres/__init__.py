"""PostgreSQL: captures tables into topics by logical decoding."""
