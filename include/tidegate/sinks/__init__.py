"""Send emissions to sinks, each batch exactly once: one port, and a folder per kind.

A folder contains `model.py`, with the fields in a pipeline file as `MODEL`, and the class that publishes, as
`SINK`. Nothing else lists kinds: the grammar, the JSON Schema, messages and `tidegate init` find them here.
"""

KINDS = ("kafka", "table", "sql", "http", "iceberg", "clickhouse")
"""`kind` in a pipeline file, which is the name of a folder here."""
