"""A pipeline on records that are given, without Kafka, ledger or tables: for case files and `simulate`.

Spark decodes and evaluates the expressions, as in production; then the kernel is called directly, batch
after batch, however the input is cut.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tidegate import core
from tidegate.engine.source import RECORD_SCHEMA, decode
from tidegate.engine.stage import kernel_stage, stage_rows
from tidegate.spec import CaseRecord, Pipeline, Tick

_ARRIVAL = "arrival"
_ORDER = ("key", "kind", "updated_seq", "topic", "partition", "offset")
Position = tuple[str, int, int]


@dataclass(frozen=True)
class Emitted:
    """One emission: `value` as its JSON object, null for a deletion; `reason` says why it went out."""

    key: str
    value: Any
    timestamp: int
    reason: str
    source: Position


@dataclass
class Outcome:
    """All emissions, in order per key, and what became of the records."""

    emissions: list[Emitted] = field(default_factory=list)
    counts: core.Counts = field(default_factory=core.Counts)

    def by_key(self) -> dict[str, list[Emitted]]:
        """Key -> its emissions, in order."""
        found: dict[str, list[Emitted]] = {}
        for each in self.emissions:
            found.setdefault(each.key, []).append(each)
        return found


class Replay:
    """A pipeline with its decoded input, ready to be run under any cut into batches."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline, steps: Sequence[CaseRecord | Tick]) -> None:
        self._spark = spark
        self._stage = pipeline.stages[0]
        self.records = [step for step in steps if isinstance(step, CaseRecord)]
        self.ticks = _tick_positions(steps)
        self._rows = self._decoded(pipeline, _clocks(steps))

    def run(self, cuts: Sequence[int] | None = None) -> Outcome:
        """The outcome when a batch ends before each record number in `cuts`; ticks always end one."""
        ends = sorted({*(cuts or ()), *self.ticks} - {0, len(self.records)})
        outcome = Outcome()
        state = self._rows.slice(0, 0).drop_columns([_ARRIVAL])
        arrivals = self._rows[_ARRIVAL]
        for seq, (first, last) in enumerate(_spans(ends, len(self.records)), start=1):
            inside = pc.and_(pc.greater_equal(arrivals, first), pc.less(arrivals, last))
            batch = self._rows.filter(inside).drop_columns([_ARRIVAL])
            state = self._apply(seq, state, batch, outcome)
        return outcome

    def _apply(self, seq: int, state: pa.Table, batch: pa.Table, outcome: Outcome) -> pa.Table:
        """One batch through the kernel; gives the state after it."""
        rows = pa.concat_tables([state, batch])
        rows = rows.take(
            pc.sort_indices(rows.select(_ORDER), sort_keys=[(name, "ascending") for name in _ORDER])
        )
        changed = [state]
        for decided in core.decide(kernel_stage(self._stage), rows.combine_chunks().to_batches()):
            kinds = decided.column("kind")
            outcome.emissions += map(_emitted, decided.filter(pc.equal(kinds, core.EMISSION)).to_pylist())
            for text in decided.column("counts").drop_null().to_pylist():
                outcome.counts.update(json.loads(text))
            changed.append(_as_input(decided.filter(pc.equal(kinds, core.STATE)), seq, state.schema))
        return pa.concat_tables(changed)

    def with_json(self, outcome: Outcome) -> Outcome:
        """The same outcome with values as production writes them: Spark's JSON."""
        kind = self._rows.schema.field("value").type
        values = pa.table(
            {"n": range(len(outcome.emissions)), "v": pa.array([e.value for e in outcome.emissions], kind)}
        )
        if not values.num_rows:
            return outcome
        texts = self._spark.createDataFrame(values).select(
            "n", F.to_json("v", {"ignoreNullFields": "false"}).alias("j")
        )
        by_number = {row["n"]: json.loads(row["j"]) if row["j"] else None for row in texts.collect()}
        listed = [
            Emitted(e.key, by_number[number], e.timestamp, e.reason, e.source)
            for number, e in enumerate(outcome.emissions)
        ]
        return Outcome(listed, outcome.counts)

    def _decoded(self, pipeline: Pipeline, clocks: Sequence[int | None]) -> pa.Table:
        source = [
            {**_kafka_record(record), "__clock": clock, "__arrival": number}
            for number, (record, clock) in enumerate(zip(self.records, clocks, strict=True))
        ]
        records = self._spark.createDataFrame(source, f"{RECORD_SCHEMA}, __clock bigint, __arrival bigint")
        decoded = decode(records, pipeline.source, F.col("__clock") + core.FUTURE_MS)
        rows = stage_rows(decoded, self._stage, F.col("__record")["__arrival"].alias(_ARRIVAL))
        return rows.toArrow().combine_chunks()


def _spans(ends: Sequence[int], total: int) -> Iterator[tuple[int, int]]:
    starts = [0, *ends]
    yield from zip(starts, [*ends, total], strict=True)


def _clocks(steps: Sequence[CaseRecord | Tick]) -> list[int | None]:
    """Per record, the clock of the tick that ends its batch; none after the last tick."""
    clocks: list[int | None] = []
    clock: int | None = None
    for step in reversed(steps):
        if isinstance(step, Tick):
            clock = step.clock_ms
        else:
            clocks.append(clock)
    return clocks[::-1]


def _tick_positions(steps: Sequence[CaseRecord | Tick]) -> list[int]:
    """How many records came before each tick."""
    positions, seen = [], 0
    for step in steps:
        if isinstance(step, Tick):
            positions.append(seen)
        else:
            seen += 1
    return positions


def _kafka_record(record: CaseRecord) -> dict[str, Any]:
    return {
        "key": None if record.key is None else record.key.encode(),
        "value": record.payload,
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": datetime.fromtimestamp(record.timestamp / 1000, tz=timezone.utc),
        "headers": [{"key": name, "value": text.encode()} for name, text in record.headers],
    }


def _emitted(row: Mapping[str, Any]) -> Emitted:
    source = (row["topic"], row["partition"], row["offset"])
    return Emitted(row["key"], row["value"], row["timestamp"], row["reason"], source)


def _as_input(states: pa.RecordBatch, seq: int, schema: pa.Schema) -> pa.Table:
    """State rows that the kernel gave, as rows that it takes."""
    table = pa.Table.from_batches([states])
    columns = {name: table[name] for name in schema.names if name in table.column_names}
    columns["updated_seq"] = pa.repeat(pa.scalar(seq, pa.int64()), table.num_rows)
    columns["passes"] = pa.repeat(True, table.num_rows)
    return pa.table([columns[name] for name in schema.names], schema=schema)
