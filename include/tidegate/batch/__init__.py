"""The steps of a batch: plan, compute, validate, commit, publish. Each step can be run again at any time."""

from tidegate.batch.commit import check_source, commit_batch
from tidegate.batch.compute import check_still_there, compute_batch
from tidegate.batch.dry_run import describe_next_batch
from tidegate.batch.freshness import stale_publication
from tidegate.batch.intervals import batches_of_run, has_more_batches, is_done, noted_batches, run_of_batch
from tidegate.batch.pipeline_files import (
    broken_stream,
    explain_broken_file,
    finish_orphaned_streams,
    orphaned_streams,
    require_compatible,
    streams_of_broken_files,
    streams_without_file,
)
from tidegate.batch.plan import Outcome, draft, plan_batch
from tidegate.batch.publish import (
    check_progress,
    is_sent_in_shards,
    publish_batch,
    published_sinks,
    withheld_note,
)
from tidegate.batch.run import connections, run_batch
from tidegate.batch.topics import new_topics
from tidegate.batch.trigger import RepeatedBatch, ReplayRequest, Trigger
from tidegate.batch.validate import validate_batch
from tidegate.batch.warnings import old_record_warnings, stalled_transactions

__all__ = [
    "Outcome",
    "RepeatedBatch",
    "ReplayRequest",
    "Trigger",
    "batches_of_run",
    "broken_stream",
    "check_progress",
    "check_source",
    "check_still_there",
    "commit_batch",
    "compute_batch",
    "connections",
    "draft",
    "finish_orphaned_streams",
    "describe_next_batch",
    "explain_broken_file",
    "has_more_batches",
    "is_done",
    "is_sent_in_shards",
    "new_topics",
    "noted_batches",
    "old_record_warnings",
    "orphaned_streams",
    "plan_batch",
    "publish_batch",
    "published_sinks",
    "require_compatible",
    "run_batch",
    "run_of_batch",
    "stale_publication",
    "stalled_transactions",
    "streams_of_broken_files",
    "streams_without_file",
    "validate_batch",
    "withheld_note",
]
