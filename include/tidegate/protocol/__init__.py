"""The batch protocol: plan, compute, validate, commit, publish. Each step can be run again at any time."""

from tidegate.protocol.commit import check_source, commit_batch
from tidegate.protocol.compute import check_still_there, compute_batch
from tidegate.protocol.connections import sql_connections
from tidegate.protocol.edits import require_compatible
from tidegate.protocol.generations import (
    finish_orphaned_streams,
    orphaned_batches,
    orphaned_streams,
    streams_of_broken_files,
    streams_without_file,
)
from tidegate.protocol.plan import Outcome, Trigger, draft, plan_batch
from tidegate.protocol.publish import publish_batch
from tidegate.protocol.reconcile import check_progress, reconcile
from tidegate.protocol.run import preloading_quality, run_batch
from tidegate.protocol.stalled import stalled_transactions
from tidegate.protocol.unfinished import Unfinished, unfinished_batches
from tidegate.protocol.validate import validate_batch

__all__ = [
    "Outcome",
    "Trigger",
    "Unfinished",
    "check_progress",
    "check_source",
    "check_still_there",
    "commit_batch",
    "compute_batch",
    "draft",
    "finish_orphaned_streams",
    "orphaned_batches",
    "orphaned_streams",
    "plan_batch",
    "preloading_quality",
    "publish_batch",
    "reconcile",
    "require_compatible",
    "run_batch",
    "sql_connections",
    "stalled_transactions",
    "streams_of_broken_files",
    "streams_without_file",
    "unfinished_batches",
    "validate_batch",
]
