"""Building kernel rows from plain records, and reading what the kernel gave."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc

from tidegate import kernel

VALUE = pa.struct([("a", pa.float64()), ("b", pa.string())])
INPUT = pa.struct([("reason", pa.string())])
SCHEMA = kernel.input_schema(VALUE, VALUE, VALUE, INPUT)


@dataclass(frozen=True)
class Record:
    """An input record of one key; `value` None is a tombstone."""

    key: str
    value: dict[str, Any] | None
    partition: int
    offset: int
    timestamp: int
    passes: bool = True


def key_hash(key: str) -> int:
    """Any function of the key will do for the kernel. Some keys share a hash, on purpose."""
    return crc32(key.encode()) % 1000 - 500


def record_row(record: Record) -> dict[str, Any]:
    return {
        "kind": kernel.RECORD,
        "hash": key_hash(record.key),
        "key": record.key,
        "updated_seq": 0,
        "topic": "in",
        "partition": record.partition,
        "offset": record.offset,
        "turn": record.offset,
        "part": 0,
        "timestamp": record.timestamp,
        "passes": record.passes or record.value is None,
        "value": record.value,
    }


def sorted_batches(rows: Iterable[dict[str, Any]], size: int) -> list[pa.RecordBatch]:
    """Rows as Spark brings them: sorted, in batches that may part a key's rows."""
    table = pa.Table.from_pylist(list(rows), schema=SCHEMA)
    table = table.take(
        pc.sort_indices(
            table.select(kernel.BY_KEY), sort_keys=[(name, "ascending") for name in kernel.BY_KEY]
        )
    )
    whole = table.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], schema=SCHEMA)]
    return [batch.slice(at, size) for batch in whole for at in range(0, max(batch.num_rows, 1), size)]


@dataclass
class Kernel:
    """The kernel over a history of batches, with the state that it gave.

    `one_by_one`: record by record, although it could be done on whole columns.
    """

    emit: kernel.Emit
    one_by_one: ClassVar[bool] = False
    arrow_rows: int = 3
    unchanged: kernel.Unchanged | None = None
    state: list[dict[str, Any]] = field(default_factory=list)
    emissions: dict[str, list[Any]] = field(default_factory=dict)
    emitted_rows: list[dict[str, Any]] = field(default_factory=list)
    quarantined: list[dict[str, Any]] = field(default_factory=list)
    counts: kernel.Counts = field(default_factory=kernel.Counts)
    changed_rows: int = 0
    seq: int = 0

    def apply(
        self,
        records: Sequence[Record],
        extra: Sequence[dict[str, Any]] = (),
        times: dict[tuple[str, int], int] | None = None,
    ) -> None:
        self.seq += 1
        rows = [*self.state, *map(record_row, records), *extra]
        stage = kernel.Stage(kernel.Latest(), self.emit, unchanged=self.unchanged)
        batch_ = kernel.Batch(times or {}, trace=self.one_by_one)
        for batch in kernel.decide(stage, sorted_batches(rows, self.arrow_rows), batch_):
            for row in batch.to_pylist():
                self._take(row)

    def _take(self, row: dict[str, Any]) -> None:
        if row["kind"] == kernel.EMISSION:
            self.emissions.setdefault(row["key"], []).append(row["value"])
            self.emitted_rows.append(row)
        elif row["kind"] == kernel.STATE:
            self.changed_rows += 1
            stored = {name: row[name] for name in SCHEMA.names if name in row}
            placed = {"updated_seq": self.seq, "turn": -1, "part": 0, "passes": True, "value": None}
            self.state.append(stored | placed)
        elif row["kind"] == kernel.QUARANTINED:
            self.quarantined.append(row)
        elif row["kind"] == kernel.COUNTS:
            self.counts.include(json.loads(row["counts"]))
