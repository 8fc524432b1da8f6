"""Quarantine: input that tidegate could not use, and emissions that a sink would refuse.

You can list, count and export the records, correct them, and replay or discard them.
"""

from tidegate.quarantine.edit import RecordEdit
from tidegate.quarantine.export import export_quarantine, exported, exported_objects, iter_exported
from tidegate.quarantine.page import samples_of, summary_of
from tidegate.quarantine.query import (
    count_by_status,
    count_quarantine,
    list_quarantine,
    record_history,
)
from tidegate.quarantine.replay import ReplayedRecords
from tidegate.quarantine.resolve import ResolutionRequest, discard_records
from tidegate.quarantine.resolved import Decision, Status, open_decisions
from tidegate.quarantine.store import QuarantineFilter, iter_open, iter_quarantine

__all__ = [
    "Decision",
    "QuarantineFilter",
    "RecordEdit",
    "ReplayedRecords",
    "ResolutionRequest",
    "Status",
    "count_by_status",
    "count_quarantine",
    "discard_records",
    "export_quarantine",
    "exported",
    "exported_objects",
    "iter_exported",
    "iter_open",
    "iter_quarantine",
    "list_quarantine",
    "open_decisions",
    "record_history",
    "samples_of",
    "summary_of",
]
