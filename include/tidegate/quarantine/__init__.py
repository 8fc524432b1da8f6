"""Quarantine: input that tidegate could not use, and emissions that a sink would refuse.

You can list, count and export the records, correct them, and replay or discard them.
"""

from tidegate.quarantine.count import CountedBy, QuarantineCount, count_quarantine
from tidegate.quarantine.edit import ValueEdit
from tidegate.quarantine.export import export_quarantine, exported, exported_objects
from tidegate.quarantine.history import (
    Decision,
    Decisions,
    RecordEvent,
    Status,
    count_by_status,
    iter_open,
    record_history,
)
from tidegate.quarantine.imported import iter_exported
from tidegate.quarantine.page import QuarantineSample, ReasonSummary, samples_of, summary_of
from tidegate.quarantine.query import list_quarantine
from tidegate.quarantine.replay import ReplayedRecords
from tidegate.quarantine.resolve import ResolutionRequest, discard_records
from tidegate.quarantine.store import QuarantineFilter, iter_quarantine

__all__ = [
    "CountedBy",
    "Decision",
    "Decisions",
    "QuarantineCount",
    "QuarantineFilter",
    "QuarantineSample",
    "ReasonSummary",
    "RecordEvent",
    "ReplayedRecords",
    "ResolutionRequest",
    "Status",
    "ValueEdit",
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
    "record_history",
    "samples_of",
    "summary_of",
]
