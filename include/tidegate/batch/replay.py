"""Records in quarantine come in again, as a batch of their own: its plan, which reads nothing of Kafka.

They are taken as new, after all records that were read before. So the clocks stay where the head has them,
and no time is applied to what was not read yet.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.app.root import App
from tidegate.batch.resolve import ResolutionRequest, Skipped, written_resolution
from tidegate.core.quarantine import CONDITION_FAILED, FUNCTION_FAILED, RECORD_FAILED
from tidegate.errors import SettingsInvalid
from tidegate.formats import EMISSION, Reason
from tidegate.lake.quarantine import reason_codes
from tidegate.ledger import Head, LeasedLedger, Plan, Resolution
from tidegate.spec import Pipeline
from tidegate.spec.deduplicate import DeduplicateColumns

_EMISSIONS = (str(Reason.TOO_LARGE), str(Reason.REFUSED_TIMESTAMP))
_BY_STAGES = (CONDITION_FAILED, RECORD_FAILED, FUNCTION_FAILED)


def with_replay(
    app: App, lease: LeasedLedger, pipeline: Pipeline, head: Head, plan: Plan, request: ResolutionRequest
) -> tuple[Plan, Resolution | None, Skipped]:
    """The plan, which reads nothing, with the open records that are asked for as its input.

    The resolution goes into the ledger with the plan; None: none of the records is open. Raises
    SettingsInvalid for records of partitions that the stream has not read, and what `written_resolution`
    raises.
    """

    def unfit(rows: pa.Table) -> pa.ChunkedArray:
        _require_read(head, rows)
        reasons = reason_codes(rows["reason"])
        is_emission = pc.fill_null(pc.equal(rows["part"], EMISSION), False)
        mask = pc.or_(is_emission, pc.is_in(reasons, value_set=pa.array(_EMISSIONS)))
        source = pipeline.source
        if isinstance(source.deduplicate, DeduplicateColumns) or source.sequence is not None:
            # what drops repeated values, and what is not later, had let it through, and would drop it now
            mask = pc.or_(mask, pc.is_in(reasons, value_set=pa.array(_BY_STAGES)))
        return mask

    resolution, skipped = written_resolution(app, lease, request, plan.seq, unfit)
    if resolution is None:
        return plan, None, skipped
    applied = [clock for at, clock in plan.clocks.items() if at not in plan.cut_partitions]
    clock_ms = min(applied, default=plan.least_clock)
    return replace(plan, replay=resolution.manifest, clock_ms=clock_ms), resolution, skipped


def _require_read(head: Head, rows: pa.Table) -> None:
    for place in (
        rows.select(["topic", "partition"]).group_by(["topic", "partition"]).aggregate([]).to_pylist()
    ):
        if (place["topic"], place["partition"]) not in head.offsets:
            raise SettingsInvalid(
                f"{head.stream} has never read {place['topic']}[{place['partition']}]",
                "Replay records of its own topics; `tidegate quarantine export` writes them.",
            )
