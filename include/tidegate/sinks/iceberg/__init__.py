"""Publish to Iceberg tables: each batch is one snapshot, whose summary has the batch."""
