"""Replay records of quarantine: a batch of their own reads them as new, after all that was read before.

The batch reads nothing from Kafka. The clocks stay where the head has them, so that no time is applied to
records that were not read yet.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.app.root import App
from tidegate.errors import SettingsInvalid
from tidegate.formats import EMISSION, Reason
from tidegate.kernel.unusable import CONDITION_FAILED, FUNCTION_FAILED, LATE, RECORD_FAILED
from tidegate.ledger import Head, LeasedLedger, Plan, Resolution
from tidegate.model.kernel_stages import deduplication_stage, sequence_stage
from tidegate.model.pipeline import Pipeline
from tidegate.quarantine.resolve import ResolutionRequest, written_resolution
from tidegate.storage.quarantine_files import reason_codes

_EMISSIONS = (str(Reason.TOO_LARGE), str(Reason.REFUSED_TIMESTAMP), str(Reason.REFUSED_ROW))
_BY_STAGES = (CONDITION_FAILED, RECORD_FAILED, FUNCTION_FAILED, LATE)


@dataclass(frozen=True)
class ReplayedRecords(ResolutionRequest):
    """A request to replay records: a `batch.ReplayRequest`.

    Example::

        Trigger(run_id, now_ms, replay=ReplayedRecords(lambda: iter_open(app, stream, where), "ada"))
    """

    def planned(
        self, app: App, lease: LeasedLedger, pipeline: Pipeline, head: Head, plan: Plan
    ) -> tuple[Plan, Resolution | None, str]:
        """Return the plan with the open records as its input, the resolution, and which records were skipped.

        Args:
            plan: A plan that reads nothing.

        Raises SettingsInvalid for records of partitions that the stream has not read, and what
        `written_resolution` raises.
        """

        def unfit(rows: pa.Table) -> pa.ChunkedArray:
            # An emission that a table has caused has a position of the table, which no batch reads.
            _require_read(head, rows.filter(pc.invert(_are_emissions(rows))))
            return _unfit(pipeline, rows)

        resolution, skipped = written_resolution(app, lease, self, plan.seq, unfit)
        if resolution is None:
            return plan, None, str(skipped)
        # A batch raises the clock of each partition that is not cut to its own: the least one raises none.
        applied = [clock for at, clock in plan.clocks.items() if at not in plan.cut_partitions]
        clock_ms = min(applied, default=plan.least_clock)
        return replace(plan, replay=resolution.manifest, clock_ms=clock_ms), resolution, str(skipped)


def _unfit(pipeline: Pipeline, rows: pa.Table) -> pa.ChunkedArray:
    """Return which of the rows cannot be read again."""
    reasons = reason_codes(rows["reason"])
    is_emission = _are_emissions(rows)
    mask = pc.or_(is_emission, pc.is_in(reasons, value_set=pa.array(_EMISSIONS)))
    # These rules accepted the record before a stage failed on it; they would drop it as a repetition now.
    is_repetition = deduplication_stage(pipeline) is not None or sequence_stage(pipeline) is not None
    # Where several stages read a source, the others have used the record on which one failed.
    shared = [
        name for name, source in pipeline.sources.items() if is_repetition or _readers(pipeline, name) > 1
    ]
    topics = pc.unique(rows.filter(pc.invert(is_emission))["topic"]).to_pylist()
    topics = [topic for topic in topics if pipeline.sources.name_of(topic) in shared]
    of_shared = pc.is_in(rows["topic"], value_set=pa.array(topics, pa.string()))
    return pc.or_(mask, pc.and_(of_shared, pc.is_in(reasons, value_set=pa.array(_BY_STAGES))))


def _are_emissions(rows: pa.Table) -> pa.ChunkedArray:
    return pc.fill_null(pc.equal(rows["part"], EMISSION), False)


def _readers(pipeline: Pipeline, source: str) -> int:
    """Return the number of stages that read a source."""
    return sum(source in stage.sources for stage in pipeline.source_stages)


def _require_read(head: Head, rows: pa.Table) -> None:
    partitions = rows.select(["topic", "partition"]).group_by(["topic", "partition"]).aggregate([])
    for place in partitions.to_pylist():
        if (place["topic"], place["partition"]) not in head.offsets:
            raise SettingsInvalid(
                f"{head.stream} has never read {place['topic']}[{place['partition']}]",
                "Replay records of its own topics; `tidegate quarantine export` writes them.",
            )
