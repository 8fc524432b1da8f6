"""The `clickhouse` sink: writes emissions to a table of ClickHouse, where newer rows replace older ones."""
