"""The `sql` sink: writes emissions as rows of a table in PostgreSQL, SQLite or another database."""
