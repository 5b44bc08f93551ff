"""Tables of databases: topics kept as tables, and tables that are polled. PostgreSQL, MySQL and SQLite."""
