"""The batch protocol: plan, compute, validate, commit, publish. Each step can be run again at any time."""

from tidegate.protocol.approval import Approval, needs_approval
from tidegate.protocol.commit import check_source, commit_batch
from tidegate.protocol.compute import check_still_there, compute_batch
from tidegate.protocol.connections import connections
from tidegate.protocol.cover import batches_of_run, has_more_batches, noted_batches, run_of_batch
from tidegate.protocol.discard import discard_records
from tidegate.protocol.drop import drop_generation
from tidegate.protocol.dry_run import describe_next_batch
from tidegate.protocol.edits import require_compatible
from tidegate.protocol.generations import (
    finish_orphaned_streams,
    orphaned_streams,
    streams_of_broken_files,
    streams_without_file,
)
from tidegate.protocol.last_good import broken_stream, explain_broken_file
from tidegate.protocol.old_records import old_record_warnings
from tidegate.protocol.origin import begin_from
from tidegate.protocol.plan import Outcome, draft, plan_batch
from tidegate.protocol.promotion import (
    Promoted,
    open_generation,
    promote,
    replaced_stream,
    require_generation,
    rollback,
)
from tidegate.protocol.publish import publish_batch
from tidegate.protocol.resolve import ResolutionRequest
from tidegate.protocol.run import run_batch
from tidegate.protocol.sink_progress import check_progress, published_sinks
from tidegate.protocol.stalled import stalled_transactions
from tidegate.protocol.trigger import Trigger
from tidegate.protocol.validate import validate_batch

__all__ = [
    "Approval",
    "Outcome",
    "Promoted",
    "ResolutionRequest",
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
    "discard_records",
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
