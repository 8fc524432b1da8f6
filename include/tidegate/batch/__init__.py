"""The batch protocol: plan, compute, validate, commit, publish. Each step can be run again at any time."""

from tidegate.batch.approval import Approval, needs_approval
from tidegate.batch.commit import check_source, commit_batch
from tidegate.batch.compute import check_still_there, compute_batch
from tidegate.batch.connections import connections
from tidegate.batch.cover import batches_of_run, has_more_batches, noted_batches, run_of_batch
from tidegate.batch.drop import drop_generation
from tidegate.batch.dry_run import describe_next_batch
from tidegate.batch.edits import require_compatible
from tidegate.batch.generations import (
    finish_orphaned_streams,
    orphaned_streams,
    streams_of_broken_files,
    streams_without_file,
)
from tidegate.batch.last_good import broken_stream, explain_broken_file
from tidegate.batch.old_records import old_record_warnings
from tidegate.batch.origin import begin_from
from tidegate.batch.plan import Outcome, draft, plan_batch
from tidegate.batch.promotion import (
    Promoted,
    open_generation,
    promote,
    replaced_stream,
    require_generation,
    rollback,
)
from tidegate.batch.publish import publish_batch
from tidegate.batch.run import run_batch
from tidegate.batch.sink_progress import check_progress, published_sinks
from tidegate.batch.stalled import stalled_transactions
from tidegate.batch.trigger import ReplayRequest, Trigger
from tidegate.batch.validate import validate_batch

__all__ = [
    "Approval",
    "Outcome",
    "Promoted",
    "ReplayRequest",
    "Trigger",
    "begin_from",
    "batches_of_run",
    "broken_stream",
    "check_progress",
    "check_source",
    "check_still_there",
    "commit_batch",
    "compute_batch",
    "connections",
    "draft",
    "drop_generation",
    "finish_orphaned_streams",
    "open_generation",
    "describe_next_batch",
    "explain_broken_file",
    "has_more_batches",
    "needs_approval",
    "noted_batches",
    "old_record_warnings",
    "orphaned_streams",
    "plan_batch",
    "promote",
    "publish_batch",
    "published_sinks",
    "replaced_stream",
    "require_compatible",
    "require_generation",
    "rollback",
    "run_batch",
    "run_of_batch",
    "stalled_transactions",
    "streams_of_broken_files",
    "streams_without_file",
    "validate_batch",
]
