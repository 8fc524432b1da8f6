"""A pipeline on given records, batch after batch, each as a job of the data plane with files of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate import kernel
from tidegate.formats import Records
from tidegate.kafka.records import Slice
from tidegate.kernel.json_text import json_texts
from tidegate.ledger import Plan, Stream
from tidegate.ledger.records import OffsetRange
from tidegate.model.pipeline import Pipeline
from tidegate.spark.batch import compute_batch
from tidegate.spark.computation import Before, Computation, Computed, PlannedBatch
from tidegate.spark.reused import StoredBatch
from tidegate.spark.source import KafkaSource, RecordSlice, RecordSource
from tidegate.storage import Lake
from tidegate.yaml.cases import CaseRecord

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Place = tuple[str, int]
ALWAYS_BELIEVED = 2**62


@dataclass(frozen=True)
class GivenSlice:
    """Records that are at hand."""

    range: Slice
    records: tuple[CaseRecord, ...]

    def blocks(self) -> Iterator[Records]:
        records = self.records
        yield Records(
            self.range.topic,
            self.range.partition,
            [record.offset for record in records],
            [record.timestamp for record in records],
            [None if record.key is None else record.key.encode() for record in records],
            [record.payload for record in records],
            [[(name, text.encode()) for name, text in record.headers] for record in records],
        )


@dataclass(frozen=True)
class GivenRecords:
    """A `RecordSource` of records that are at hand, by topic-partition."""

    records: tuple[CaseRecord, ...]

    def slices(self, timed: bool, cores: int) -> list[RecordSlice]:
        del timed, cores
        return [
            GivenSlice(Slice(*place, records[0].offset, records[-1].offset + 1), records)
            for place, records in by_place(self.records).items()
        ]


def by_place(records: Sequence[CaseRecord]) -> dict[Place, tuple[CaseRecord, ...]]:
    """The records of each topic-partition, in order."""

    def place(record: CaseRecord) -> Place:
        return record.topic, record.partition

    return {home: tuple(group) for home, group in groupby(sorted(records, key=place), key=place)}


@dataclass
class Played:
    """A pipeline's stream: what its batches have left, and all that they gave."""

    spark: SparkSession
    pipeline: Pipeline
    root: Path
    seq: int = 0
    clocks: dict[Place, int] = field(default_factory=dict)
    before: Before = field(default_factory=Before)
    counts: kernel.Counts = field(default_factory=kernel.Counts)
    batches: list[Computed] = field(default_factory=list)
    plans: list[Plan] = field(default_factory=list)

    @property
    def stream(self) -> Stream:
        return Stream(self.pipeline.pipeline, self.pipeline.generation)

    @property
    def lake(self) -> Lake:
        return Lake(str(self.root), self.pipeline.pipeline, self.pipeline.generation)

    def batch(self, records: Sequence[CaseRecord], clock: int | None = None, drain: bool = False) -> Computed:
        """One batch of records at hand. Without a clock none is applied."""
        return self._computed(GivenRecords(tuple(records)), self._plan(by_place(records), clock, drain))

    def reuse(self, other: Played, stages: Sequence[str]) -> None:
        """Repeat all batches of another stream, of which `stages` are not computed."""
        for plan, computed in zip(other.plans, other.batches, strict=True):
            parts = (computed.counts, computed.times, tuple(stages))
            stored = StoredBatch(other.lake.store, computed.manifest, *parts)
            self._computed(GivenRecords(()), replace(plan, stream=self.stream), stored)

    def read(self, source: KafkaSource) -> Computed:
        """One batch of Kafka's records, without a clock."""
        return self._computed(source, self._plan_of(source))

    def frame(self, source: KafkaSource) -> DataFrame:
        """Return the frame that Spark would run for a batch on this source."""
        computation = Computation(self.spark, self.planned(self._plan_of(source), self.before))
        return computation.frame(source, "planned")

    def planned(self, plan: Plan, before: Before) -> PlannedBatch:
        """Return a batch of the stream, from the state before it."""
        return PlannedBatch(plan, self.pipeline, self.lake, before)

    def _computed(self, source: RecordSource, plan: Plan, stored: StoredBatch | None = None) -> Computed:
        attempt = f"{plan.seq:010d}-000001-00000000"
        computed = compute_batch(self.spark, self.planned(plan, self.before), source, attempt, stored)
        self.seq, self.clocks = plan.seq, plan.clocks_after
        self.plans.append(plan)
        self._keep(computed)
        return computed

    def _plan_of(self, source: KafkaSource) -> Plan:
        places = {(range_.topic, range_.partition): () for range_ in source.ranges}
        return replace(self._plan(places, None, False), ranges=source.ranges)

    def _plan(self, places: Mapping[Place, Sequence[CaseRecord]], clock: int | None, drain: bool) -> Plan:
        floor = max(self.clocks.values(), default=-1)
        self.clocks = {place: self.clocks.get(place, floor) for place in {*self.clocks, *places}}
        ranges = tuple(
            OffsetRange(*place, start=0, end=len(places.get(place, ())), is_cut=clock is None)
            for place in sorted(self.clocks)
        )
        believed = ALWAYS_BELIEVED if clock is None else clock + kernel.FUTURE_MS
        return Plan(
            *(
                self.stream,
                self.seq + 1,
                "played",
                floor if clock is None else clock,
                believed,
                ranges,
                {},
                "",
                "",
            ),
            drain=drain,
            clocks=dict(self.clocks),
        )

    def _keep(self, computed: Computed) -> None:
        files = {
            stage: (*self.before.state.get(stage, ()), *computed.manifest.files_of("state", stage))
            for stage in computed.counts
            if stage
        }
        self.before = Before(files, computed.times, computed.counts)
        for stage, counts in computed.counts.items():
            if stage and not stage.endswith(":records"):  # those of a source, which a pass counts, too
                self.counts.include(counts)
        self.batches.append(computed)

    def rows(self, kind: Any, stage: str = "") -> list[dict[str, Any]]:
        """Return all rows of a kind that the batches have written, in the order of batches and files.

        `text` is the JSON text of `value`, where that is a struct.
        """
        files = [
            file
            for computed in self.batches
            for file in computed.manifest.files
            if file.kind == kind and (file.stage == stage or kind == "quarantine")
        ]
        return [row for file in files for row in _read(self.root / file.path)]

    def emissions(self, stage: str | None = None) -> dict[str, list[Mapping[str, Any]]]:
        """Key -> what went out of a stage (default the last), in order."""
        name = stage or self.pipeline.stages[-1].name
        emitted: dict[str, list[Mapping[str, Any]]] = {}
        for row in self.rows("outbox", name):
            emitted.setdefault(row["key"], []).append(row)
        return emitted


def _read(path: Path) -> list[dict[str, Any]]:
    table = pq.read_table(path, partitioning=None)
    if "value" in table.column_names and pa.types.is_struct(table.schema.field("value").type):
        table = table.append_column("text", json_texts(table["value"].combine_chunks()))
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows
