"""Tables of an Iceberg catalog, for sinks and for the tables for other engines."""
