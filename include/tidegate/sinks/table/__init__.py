"""The `table` sink: emissions appended to a Delta table, which says itself how far it is."""
