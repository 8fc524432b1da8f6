"""Files, manifests and state, and Delta tables for other engines. No JVM."""

from tidegate.storage.layout import Lake, LedgerMark, Marks, Name, attempt_name, snapshot_name
from tidegate.storage.manifest import DataFile, Manifest, read_manifest, write_manifest
from tidegate.storage.store import Store, Written

__all__ = [
    "DataFile",
    "Lake",
    "Manifest",
    "Marks",
    "Name",
    "Store",
    "LedgerMark",
    "Written",
    "attempt_name",
    "read_manifest",
    "snapshot_name",
    "write_manifest",
]
