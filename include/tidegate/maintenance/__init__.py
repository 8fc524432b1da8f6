"""Compaction and cleaning, which keep a stream's files few. Both are safe beside running batches."""

from tidegate.maintenance.cleaning import Cleaned, clean
from tidegate.maintenance.compaction import Compaction, compact_state, work_on_streams

__all__ = ["Cleaned", "Compaction", "clean", "compact_state", "work_on_streams"]
