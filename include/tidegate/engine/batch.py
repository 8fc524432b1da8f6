"""One batch in Spark: read the planned ranges, decide step by step, write all under the attempt's name."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import reduce

from py4j.protocol import Py4JError
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.storagelevel import StorageLevel

from tidegate import core
from tidegate.broker.config import KafkaConfig
from tidegate.engine.errors import translated
from tidegate.engine.lookups import enrich, planned_tables
from tidegate.engine.rows import (
    Times,
    end_times,
    read_state_rows,
    record_rows,
    require_deterministic,
    source_times,
    state_rows,
    timed,
)
from tidegate.engine.semantics import pin_semantics
from tidegate.engine.sizes import gathered, refused_of, sizes_of, split
from tidegate.engine.source import decode, read_ranges
from tidegate.engine.stage import KeyTypes, apply_kernel, emission_frame
from tidegate.engine.steps import (
    Step,
    forwarded,
    keeps_input,
    keeps_time,
    packed,
    passes_by,
    published_stages,
    repeated_columns,
    source_keys,
    steps_of,
    typed,
    unpacked,
    with_following,
)
from tidegate.engine.tables import Table, changelog, outbox, quarantine, write_all
from tidegate.engine.timers import keys_with_timers, looks_at_timers
from tidegate.errors import CountMismatch
from tidegate.failpoints import failpoint
from tidegate.lake import Lake
from tidegate.ledger.records import Plan
from tidegate.spec import Pipeline

# Up to this many offsets, the batch's keys are broadcast to filter the state before it is shuffled;
# a larger batch shuffles the state with it, since its keys would not fit into a broadcast.
BROADCAST_SPAN = 500_000
_ROWS_PER_PARTITION = 500_000


@dataclass(frozen=True)
class Before:
    """What the batches before this one left: the attempts that are the state, stream times and counts per
    stage. `lookups`: the attempts that are the states which lookups read."""

    attempts: Sequence[str] = ()
    times: Mapping[str, Times] = field(default_factory=dict)
    counts: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    lookups: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Computed:
    """What a computation came to: counts per stage ("" for the batch), stream times per stage after it."""

    counts: Mapping[str, core.Counts]
    times: Mapping[str, Times]


def compute_batch(
    spark: SparkSession,
    plan: Plan,
    pipeline: Pipeline,
    kafka: KafkaConfig,
    lake: Lake,
    before: Before,
    attempt: str,
) -> Computed:
    """Compute a planned batch under the name `attempt`, on what the committed batches left.

    Nothing that it writes is visible before the ledger commits the attempt. Raises CountMismatch,
    RecordTooLarge, SchemaChanged, BufferFull, UserFunctionFailed, ConditionFailed, LookupAmbiguous, and what
    `engine.errors` makes of Spark's exceptions.
    """
    with ExitStack() as cached, translated(pipeline):
        return Computation(spark, plan, pipeline, lake, before, cached).run(kafka, attempt)


class Computation:
    """The steps of one batch, each over the emissions of the one before. `cached`: what to let go of."""

    def __init__(
        self,
        spark: SparkSession,
        plan: Plan,
        pipeline: Pipeline,
        lake: Lake,
        before: Before,
        cached: ExitStack,
    ) -> None:
        pin_semantics(spark)
        self._spark = spark
        self._plan = plan
        self._pipeline = pipeline
        self._lake = lake
        self._before = before
        self._cached = cached
        self._steps = steps_of(pipeline)
        self._keeps_time = keeps_time(self._steps)
        # Adaptive execution is off: without this every small shuffle would have 200 tasks.
        self._partitions = _partitions(plan.span, spark.sparkContext.defaultParallelism)
        spark.conf.set("spark.sql.shuffle.partitions", str(self._partitions))
        self._counts: dict[str, core.Counts] = {}
        self._times: dict[str, Times] = {}
        self._source_times: Times | None = None
        self._tables: list[Table] = []
        self._unusable: list[tuple[DataFrame, int]] = []

    def run(self, kafka: KafkaConfig, attempt: str) -> Computed:
        """All steps, then the counts, then the tables."""
        read = Observation("read")
        with failpoint("compute.decide"):
            self._decide_all(kafka, read)
        self._check_counts(read)
        write_all([*self._tables, self._quarantine()], attempt)
        return Computed(self._counts, self._times)

    def _decide_all(self, kafka: KafkaConfig, read: Observation) -> None:
        """Each step on what the one before it let through; `read` gets the counts of what came in."""
        frame = self._source(kafka, read)
        keys = source_keys(self._pipeline, frame)
        for step, following in with_following(self._steps):
            frame, keys = self._step(step, following, frame, keys)

    def _source(self, kafka: KafkaConfig, read: Observation) -> DataFrame:
        """The records of the planned ranges, decoded, exploded and enriched."""
        records = read_ranges(self._spark, kafka, self._plan.ranges)
        believed_until = F.lit(self._plan.believed_until_ms)
        frame = decode(records, self._pipeline.source, believed_until, whole=keeps_input(self._steps))
        counted = {
            "records": F.col("__part") == 0,
            "rows": F.lit(True),
            "empty": F.col("__empty"),
            "passed_by": self._passes_by(),
        }
        seen = [F.count_if(of).alias(name) for name, of in counted.items()]
        self._recounted = frame.agg(*seen)
        pinned = planned_tables(self._spark, self._plan.lookups, self._before.lookups, self._lake.root)
        there = frame.observe(read, *seen).where(~F.col("__empty")).drop("__empty")
        return enrich(there, self._pipeline, pinned)

    def _passes_by(self) -> Column:
        """Whether a record goes past the step that drops repeated ones."""
        if not self._steps[0].is_deduplication:
            return F.lit(False)
        return passes_by(repeated_columns(self._pipeline)) & ~F.col("__empty")

    def _step(
        self, step: Step, following: Step | None, frame: DataFrame, keys: KeyTypes
    ) -> tuple[DataFrame, KeyTypes]:
        """One step: gives the frame of the next one, if there is one."""
        starts = self._before.times.get(step.name, {})
        if self._keeps_time and "__time" not in frame.columns:
            frame = timed(frame, starts)
        whole = frame
        if step.is_deduplication:
            whole = kept(frame, self._cached)
            self._source_times = source_times(whole, starts)
            frame = packed(whole, repeated_columns(self._pipeline))
        rows = record_rows(frame, step.values, step.where, step.logic)
        require_deterministic(rows, self._pipeline.pipeline)
        step = typed(step, to_arrow_schema(rows.schema), keys)
        batch = self._batch(step, starts, rows)
        decided = kept(self._decide(step, rows, batch), self._cached)
        self._collect(step, decided, keys)
        if following is None:
            return frame, keys
        emissions = decided.where(F.col("kind") == core.EMISSION)
        if step.is_deduplication:
            return unpacked(emissions, whole, repeated_columns(self._pipeline)), keys
        return emission_frame(forwarded(emissions, following), keys, following.key)

    # deciding

    def _batch(self, step: Step, starts: Times, rows: DataFrame) -> core.Batch:
        """What the kernel has to know of the batch; where time is kept, that takes a look at the rows."""
        if self._keeps_time:
            with failpoint("compute.times"):
                self._times[step.name] = self._end_times(step, starts, rows)
        batch = core.Batch(self._times.get(step.name, {}), drain=self._plan.drain)
        if step.logic.clock == "stream":
            return batch
        plan = self._plan
        return replace(
            batch, clock=plan.clock_ms, floor=plan.least_clock, clocks=plan.clocks, cut=plan.cut_partitions
        )

    def _end_times(self, step: Step, starts: Times, rows: DataFrame) -> Times:
        """Stream times after the step's rows; what is dropped as repeated, or passes by, counts as well."""
        if self._source_times is not None and step.name in [first.name for first in self._steps[:2]]:
            return self._source_times
        return end_times(kept(rows, self._cached), starts)

    def _decide(self, step: Step, rows: DataFrame, batch: core.Batch) -> DataFrame:
        state = read_state_rows(self._spark, self._lake.state(step.name), self._before.attempts)
        if state is not None:
            earlier = state_rows(state, rows, step.logic)
            if self._plan.span <= BROADCAST_SPAN:
                wanted = kept(rows, self._cached).where(F.col("key").isNotNull()).select("key")
                if looks_at_timers(step.logic):
                    wanted = wanted.union(keys_with_timers(state, step.logic, batch))
                earlier = earlier.join(F.broadcast(wanted.distinct()), "key", "left_semi").select(
                    rows.columns
                )
            rows = rows.unionByName(earlier)
        # a bounded buffer belongs to a topic-partition: there is no more work to share out than that
        bounded = max(len(self._plan.ranges), 1) if step.logic.bound is not None else None
        return apply_kernel(rows, step.logic, batch, bounded or self._partitions)

    # outcome

    def _collect(self, step: Step, decided: DataFrame, keys: KeyTypes) -> None:
        """Count what a step decided, and prepare what is written of it."""
        published = step.stage if step.name in published_stages(self._pipeline) else None
        sizes = sizes_of(decided, self._pipeline, published, keys) if published else {}
        refused = refused_of(sizes, self._plan, self._pipeline, published) if published else None
        with failpoint("compute.count"):
            counts = gathered(decided, sizes, refused)
        counts = core.running_totals(counts, self._before.counts.get(step.name, {}))
        self._counts[step.name] = counts
        changed = changelog(decided, step.logic, self._plan.seq)
        self._tables.append(
            Table("state", self._lake.state(step.name), changed, counts["state-rows-changed"])
        )
        self._unusable.append((decided, counts["quarantined"]))
        if published is not None:
            quarantined = counts["emitted"] - core.outgoing(counts)
            if quarantined and refused is not None:
                decided, unusable = split(decided, refused)
                self._unusable.append((unusable, quarantined))
            emitted = outbox(decided, self._pipeline, published, keys, self._plan.seq)
            self._tables.append(Table("outbox", self._lake.outbox(step.name), emitted, core.outgoing(counts)))

    def _quarantine(self) -> Table:
        """What all steps found unusable: one table, so that there is one write."""
        frames = [quarantine(decided, self._plan.seq) for decided, rows in self._unusable if rows]
        whole = reduce(DataFrame.unionByName, frames) if frames else self._unusable[0][0]
        return Table("quarantine", self._lake.quarantine, whole, sum(rows for _, rows in self._unusable))

    def _check_counts(self, read: Observation) -> None:
        """Every row that came into a step is accounted for."""
        try:
            self._account_for({name: int(count or 0) for name, count in read.get.items()})
        except CountMismatch:
            # What a lost executor had read is read again, and observed twice: an aggregate is exact.
            self._account_for(self._recounted.collect()[0].asDict())

    def _account_for(self, seen: Mapping[str, int]) -> None:
        whole = core.Counts({"read": seen["records"], "exploded": seen["rows"] - seen["records"]})
        came_in, deletions = seen["rows"] - seen["empty"], 0
        of_records = self._steps[: 2 if self._steps[0].is_deduplication else 1]
        for step in self._steps:
            counts = self._counts[step.name]
            passed_by = seen["passed_by"] if step.is_deduplication else 0
            if not step.takes_deletions:
                counts["tombstones-ignored"] = deletions
                came_in -= deletions
            _require_equal(step, came_in - passed_by, counts)
            if step in of_records:
                whole.include({name: counts[name] for name in _OF_SOURCE})
            came_in = counts["emitted"] + passed_by
            deletions = counts["emitted-tombstones"]
        self._counts[""] = whole


def kept(frame: DataFrame, cached: ExitStack) -> DataFrame:
    """The frame, computed once, until `cached` is closed.

    On disk, so that Java's heap need not grow with the batch; small ones do not leave the page cache.
    """
    if not frame.is_cached:
        frame.persist(StorageLevel.DISK_ONLY)
        cached.callback(_let_go, frame)
    return frame


def _let_go(frame: DataFrame) -> None:
    # where Spark has ended, nothing is kept; and this must not hide why it has
    with suppress(Py4JError, OSError):
        frame.unpersist()


def _partitions(span: int, parallelism: int) -> int:
    """Enough that each fits in memory, and work for every core when there is work."""
    return max(math.ceil(span / _ROWS_PER_PARTITION), min(parallelism, math.ceil(span / 10_000)), 1)


_OF_SOURCE = ("quarantined", "deduplicated", "expired-window-record-drop")


def _require_equal(step: Step, came_in: int, counts: core.Counts) -> None:
    if came_in != counts.accounted:
        raise CountMismatch(
            f"{came_in} records came into {step.name}, but {counts.accounted} are accounted for "
            f"({counts['used']} used + {counts['quarantined']} quarantined + {counts['deduplicated']} "
            f"deduplicated + {counts['expired-window-record-drop']} too late)",
            "Run again; if it stays, please report it with the pipeline file.",
        )
