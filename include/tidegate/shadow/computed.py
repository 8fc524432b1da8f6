"""Compute what tidegate would send: a batch of all records, as production computes one, in a temporary
folder. Nothing is written beside that folder: no ledger entry, no state, no message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from tidegate.app.root import App, OpenSession, stream_of
from tidegate.batch import Trigger, draft
from tidegate.batch.compute import left_before
from tidegate.batch.lookups import check_lookup_tables
from tidegate.errors import SettingsInvalid
from tidegate.ledger import Head, OffsetRange, Offsets, Plan
from tidegate.ledger.planned import planned_pipeline
from tidegate.model.pipeline import Pipeline
from tidegate.model.sources import Sources
from tidegate.model.stage import Stage, stage_named
from tidegate.shadow.emission import SentEmission, last_hop
from tidegate.storage import Lake, attempt_name
from tidegate.storage.datafile import read_files
from tidegate.storage.schema import AT, KEY, ORDINAL, SOURCE, TIMESTAMP, VALUE, WINDOW

if TYPE_CHECKING:
    from tidegate.spark.computation import Before
    from tidegate.spark.explain import TraceEvent

BY_RECORDS = 0
"""A clock that no record is before: only the records themselves advance the time."""


@dataclass(frozen=True)
class Bounds:
    """The records that both jobs are compared on.

    Args:
        from_ms: the first record's timestamp, epoch ms; None: the start in the pipeline file.
        from_offsets: partition -> the first offset.
        until_ms: records from this timestamp on are left out, epoch ms; None: none are.
        until_offsets: partition -> the offset after the last one; partitions without one are left out. None:
            no partition has one.
        clock_ms: what stages with `clock: run` take as now; BY_RECORDS: the time of the records.
        max_records: the largest number of offsets of the source, and of records of the other job.
    """

    from_ms: int | None = None
    from_offsets: Offsets = field(default_factory=dict)
    until_ms: int | None = None
    until_offsets: Offsets | None = None
    clock_ms: int = BY_RECORDS
    max_records: int = 500_000

    def require_few(self, number: int, what: str) -> None:
        """Raise SettingsInvalid if there are more than `max_records`."""
        if number > self.max_records:
            raise SettingsInvalid(
                f"{what} has {number:,} offsets to compare, and --max-records is {self.max_records:,}",
                "Compare fewer with --from and --until, or raise --max-records: all of them are in memory.",
            )


def shadowed(pipeline: Pipeline, stage: str | None) -> tuple[Pipeline, Stage]:
    """Return the pipeline up to a stage (None: the last one), without sinks, and the stage.

    Raises SettingsInvalid if there is no such stage.
    """
    stages = pipeline.stages
    chosen = stages[-1] if stage is None else stage_named(stages, stage, pipeline.pipeline)
    stages = stages if stage is None else pipeline.path_to(chosen)
    # A check that quarantines values decides what goes out; one of a stage that is left out decides nothing.
    quality = [
        entry
        for entry in pipeline.quality
        if all(pipeline.checked_stage(check) in stages for check in entry.checks)
    ]
    changes = {"stages": stages, "sinks": (), "quality": tuple(quality), "quarantine": None}
    return pipeline.model_copy(update=changes), chosen


class ShadowBatch:
    """The batch of all records of a pipeline's source, from an empty state.

    Args:
        pipeline: a pipeline, as `shadowed` returns it.
        stage: the stage whose emissions are compared.
        now_ms: the time of the command, epoch ms: a record that is more than a day later is quarantined.
        folder: an empty folder, which Spark's workers see under the same path.

    Raises what `draft` raises, and SettingsInvalid if the source has too many records.
    """

    def __init__(
        self, app: App, pipeline: Pipeline, stage: Stage, bounds: Bounds, now_ms: int, folder: str
    ) -> None:
        self._app, self._stage = app, stage
        self.plan = _planned(app, _from(pipeline, bounds), bounds, now_ms)
        self._lake = Lake(folder, self.plan.stream.pipeline, self.plan.stream.generation)
        self._in_folder = replace(app, settings=replace(app.settings, lake=folder))
        self.is_whole = (
            bounds.until_ms is None and bounds.until_offsets is None and not self.plan.cut_partitions
        )
        """Whether it reads all records up to the end of the source."""

    def compute(self, open_session: OpenSession) -> pa.Table:
        """Return the emissions of the stage with the columns of an outbox, those of a key in order; a table
        without columns if there are none.

        Raises what the step *compute* of a batch raises.
        """
        name = attempt_name(self.plan.seq, 0)
        computed = self._in_folder.compute(self.plan, self._before(), name, open_session)
        check_lookup_tables(self.plan)
        files = computed.manifest.files_of("outbox", self._stage.name)
        rows = read_files(self._lake.store, files) if files else pa.table({})
        return rows.sort_by([(KEY, "ascending"), (ORDINAL, "ascending")]) if rows.num_rows else rows

    def explain(self, key: str, open_session: OpenSession) -> Sequence[TraceEvent]:
        """Return the events of a key in the stage, as `tidegate explain` shows them of a batch."""
        from tidegate.spark.computation import PlannedBatch  # late: only this needs Spark
        from tidegate.spark.explain import explain_batch

        pipeline = planned_pipeline(self.plan)
        records = self._app.records(self.plan, pipeline)
        session = open_session(self.plan.most_records)
        batch = PlannedBatch(self.plan, pipeline, self._lake, self._before())
        return explain_batch(session, batch, records, self._stage.name, key)

    def _before(self) -> Before:
        # The tables of lookups are those of the real lake; the batch is a first one, so there is no state.
        return left_before(self._app, self._app.ledger, self.plan)


def _from(pipeline: Pipeline, bounds: Bounds) -> Pipeline:
    """Return the pipeline with the start of the comparison, and without a bound of its batches."""

    def start(written: str | int) -> str | int:
        if bounds.from_ms is not None:
            return bounds.from_ms
        # A new pipeline that begins with the newest record has sent nothing yet: the other job has.
        return "earliest" if written == "latest" else written

    sources = {
        name: source.model_copy(update={"start": start(source.start), "max_records": None})
        for name, source in pipeline.sources.items()
    }
    return pipeline.with_sources(Sources(sources))


def _planned(app: App, pipeline: Pipeline, bounds: Bounds, now_ms: int) -> Plan:
    trigger = Trigger(
        "shadow",
        bounds.clock_ms,
        interval_end_ms=bounds.until_ms,
        now_ms=now_ms,
        until_offsets=bounds.until_offsets,
        any_clock=True,
        # It sends nothing, so it sends nothing again.
        from_start=True,
    )
    plan = draft(app, pipeline, Head(stream_of(pipeline)), trigger)
    plan = replace(plan, ranges=tuple(_begun(range_, bounds.from_offsets) for range_ in plan.ranges))
    bounds.require_few(plan.span, "The source")
    return plan


def _begun(range_: OffsetRange, starts: Offsets) -> OffsetRange:
    start = starts.get(range_.place, range_.start)
    return replace(range_, start=min(start, range_.end))


def own_emissions(rows: pa.Table, stage: Stage, windowed: bool) -> list[SentEmission]:
    """Return the rows of a stage's outbox as emissions.

    Args:
        windowed: Whether the other job names windows.
    """
    if not rows.num_rows:
        return []
    columns = [KEY, *WINDOW, VALUE, TIMESTAMP, AT, SOURCE]
    merges = stage.window is not None and stage.window.merges
    return [
        SentEmission(
            row[KEY],
            (row[WINDOW[0]], row[WINDOW[1]] if merges else None) if windowed else None,
            row[VALUE],
            row[TIMESTAMP],
            row[AT],
            last_hop(row[SOURCE]),
        )
        for row in rows.select(columns).to_pylist()
    ]
