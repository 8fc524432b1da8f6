"""The batch protocol: plan, compute, validate, commit, publish. Each step can be run again at any time."""

from tidegate.ledger.planned import planned_pipeline
from tidegate.steps.app import LONG_DONE, App, planned_for, stream_of
from tidegate.steps.cleaning import SAFE_AGE, Cleaned, clean
from tidegate.steps.commit import check_source, commit_batch
from tidegate.steps.compaction import Compaction, compact_state
from tidegate.steps.compute import check_still_there, compute_batch
from tidegate.steps.edits import require_compatible
from tidegate.steps.generations import (
    finish_orphaned_streams,
    orphaned_batches,
    orphaned_streams,
    streams_without_file,
)
from tidegate.steps.lease import check_lease, leased
from tidegate.steps.plan import Outcome, Trigger, draft, plan_batch
from tidegate.steps.publish import publish_batch
from tidegate.steps.read import (
    BatchReport,
    batch_report,
    lag,
    read_emissions,
    read_quarantine,
    read_state,
)
from tidegate.steps.run import run_batch
from tidegate.steps.sinks import check_progress, check_sinks, reconcile, sink_warnings, sql_connections
from tidegate.steps.stalled import stalled_transactions
from tidegate.steps.streams import work_on_streams
from tidegate.steps.unfinished import Unfinished, unfinished_batches
from tidegate.steps.validate import validate_batch
from tidegate.steps.verify import damaged_files

__all__ = [
    "LONG_DONE",
    "SAFE_AGE",
    "App",
    "BatchReport",
    "Cleaned",
    "Compaction",
    "Outcome",
    "Trigger",
    "Unfinished",
    "batch_report",
    "clean",
    "commit_batch",
    "compact_state",
    "compute_batch",
    "damaged_files",
    "draft",
    "finish_orphaned_streams",
    "lag",
    "leased",
    "orphaned_batches",
    "orphaned_streams",
    "plan_batch",
    "planned_for",
    "planned_pipeline",
    "publish_batch",
    "read_emissions",
    "read_quarantine",
    "read_state",
    "reconcile",
    "require_compatible",
    "check_lease",
    "check_progress",
    "check_source",
    "check_sinks",
    "check_still_there",
    "run_batch",
    "sink_warnings",
    "sql_connections",
    "stalled_transactions",
    "stream_of",
    "streams_without_file",
    "unfinished_batches",
    "validate_batch",
    "work_on_streams",
]
