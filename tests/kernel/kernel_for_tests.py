"""The kernel over a history of batches, fed and read in the form of the model."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

import pyarrow as pa

from tests.kernel.model import Batch, Buffered, Emission, Record
from tests.kernel.model.grammar import Settings
from tests.kernel.model.records import Partition, Refused
from tests.kernel.model.strategies import Case
from tests.kernel.model.values import selected
from tests.kernel.rows_for_tests import key_hash
from tidegate import kernel
from tidegate.kernel.repeats import Repeats, has_hidden_values
from tidegate.model.kernel_stages import kernel_stage
from tidegate.model.pipeline import Pipeline
from tidegate.yaml.load import parse_case_pipeline

_COLUMNS = "x double, s string, i bigint, d decimal(20,3), m map<string,double>"
_SOURCE = {"topics": ["in", "other"], "format": "json", "columns": _COLUMNS}
_TYPES = {
    "double": pa.float64(),
    "bigint": pa.int64(),
    "string": pa.string(),
    "decimal(20,3)": pa.decimal128(20, 3),
    "map<string,double>": pa.map_(pa.string(), pa.float64()),
}
_GIVEN = pa.struct([("reason", pa.string())])


def records(*values: tuple[int | None, int], key: str = "a", start: int = 1) -> tuple[Record, ...]:
    """Records of one key and partition: value, or None for a tombstone, and timestamp."""
    return tuple(
        Record(key, None if i is None else {"i": i}, "in", 0, offset, timestamp)
        for offset, (i, timestamp) in enumerate(values, start)
    )


def value_type(settings: Settings, columns: str) -> pa.DataType:
    """The columns that the stage's reduce takes of a record."""
    written = re.split(r", *(?=\w+ )", columns)
    types = {"*": pa.bool_(), **{name: _TYPES[type_] for name, type_ in map(str.split, written)}}
    if settings.reduce == "aggregates":
        return pa.struct([(aggregate.name, types[aggregate.argument]) for aggregate in settings.aggregates])
    assert settings.select
    return pa.struct([(name, types[column]) for name, column in settings.select.items()])


def pipeline_of(case: Case, source: Mapping[str, Any]) -> Pipeline:
    """The case's stage as that of a pipeline file."""
    given = {**source, "deduplicate": case.deduplicate}
    return parse_case_pipeline({"pipeline": "case", "source": given, "stages": [case.stage]}, "case")


_stages: dict[str, kernel.Stage] = {}


def stage_of(case: Case, source: Mapping[str, Any]) -> kernel.Stage:
    """The stage as the kernel takes it, by way of a pipeline file, read once for all runs of a case."""
    expected = [
        (expectation.type, expectation.columns, expectation.options) for expectation in case.expectations
    ]
    key = repr((case.stage, case.deduplicate, expected, source))
    if key not in _stages:
        _stages[key] = _stage_of(case, source)
    return _stages[key]


def _stage_of(case: Case, source: Mapping[str, Any]) -> kernel.Stage:
    pipeline = pipeline_of(case, source)
    expectations = tuple(
        kernel.RowExpectation(expectation.type, expectation.columns, expectation.options)
        for expectation in case.expectations
    )
    return replace(kernel_stage(pipeline, pipeline.stages[0]), expectations=expectations)


@dataclass
class Kernel:
    """`arrow_rows`: how many rows an Arrow batch has, so that it may part a key's rows. `sparing`: only the
    state that a batch needs is looked up: of its keys, and of what has a timer that is due. `compacting`: the
    state is folded after each batch, as a snapshot would be. `dropping`: repeated records are dropped where
    the stage ignores them, as tasks that read records do; `dropped` has their number.
    """

    case: Case
    arrow_rows: int = 3
    sparing: bool = False
    compacting: bool = False
    dropping: bool = False
    dropped: int = 0
    source: Mapping[str, Any] = field(default_factory=lambda: _SOURCE)
    emissions: list[Emission] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    state: list[dict[str, Any]] = field(default_factory=list)
    times: dict[Partition, int] = field(default_factory=dict)
    clock: int = -1
    clocks: dict[Partition, int] = field(default_factory=dict)
    seq: int = 0
    decided: list[pa.RecordBatch] = field(default_factory=list)
    """The emissions of the last batch, as the kernel returned them."""
    rows: list[dict[str, Any]] = field(default_factory=list)
    """All rows that the kernel returned for the last batch."""

    def __post_init__(self) -> None:
        self.settings = self.case.model().settings
        self.stage = stage_of(self.case, self.source)
        taken = value_type(self.settings, self.source["columns"])
        accumulator, output = self.stage.reduce.accumulator_type(taken), self.stage.reduce.output_type(taken)
        self.schema = kernel.input_schema(taken, accumulator, output, _GIVEN)

    def apply(self, batch: Batch, replay: bool = False) -> None:
        """One batch; what it raises is the kernel's."""
        settled = kernel.Batch({}, batch.clock, self.clock, dict(self.clocks), batch.cut, replay=replay)
        self.decide(batch.records, settled)
        clock = -1 if batch.clock is None else batch.clock
        self.clocks = {
            home: before if home in batch.cut else max(before, clock)
            for home in self.clocks.keys() | batch.cut
            for before in [self.clocks.get(home, self.clock)]
        }
        self.clock = max(self.clock, clock)

    def decide(self, records: Iterable[Record], batch: kernel.Batch) -> None:
        """One batch of which all but its stream times is given; by these, clocks do not count."""
        rows = [self._row(record) for record in sorted(records, key=_by_position)]
        by_clock = batch if self.stage.clock == "run" else kernel.Batch(replay=batch.replay)
        self._decide(rows, replace(by_clock, times=dict(self.times)))

    def drain(self) -> None:
        """Emit what is suppressed, in a batch without records."""
        self._decide([], self._drained())

    def _drained(self) -> kernel.Batch:
        clocks = (self.clock, dict(self.clocks)) if self.stage.clock == "run" else ()
        return kernel.Batch(dict(self.times), None, *clocks, drain=True)

    def buffered(self) -> Buffered:
        """Return what the newest state row of each entry suppresses."""
        waiting = [row["pending"] for row in self.newest() if row["pending"]]
        return Buffered(sum(waiting), len(waiting))

    def newest(self) -> list[dict[str, Any]]:
        """The state, one row per entry."""
        return list({self._entry(row): row for row in self.state}.values())

    def _compacted(self) -> list[dict[str, Any]]:
        """Return the state rows that compaction (`storage.compaction`) keeps."""
        forgets = kernel.live_rows_suffice(self.stage)
        return [row for row in self.newest() if not forgets or row["live"]]

    def live(self) -> set[tuple[str, Any]]:
        """Key and window of each entry that a reader of the state sees."""
        return {(row["key"], _window(row)) for row in self.newest_live()}

    def newest_live(self) -> list[dict[str, Any]]:
        """The rows that a reader of the state sees."""
        return [row for row in self.newest() if row["live"]]

    def _entry(self, row: dict[str, Any]) -> Any:
        home = (row["topic"], row["partition"]) if self.stage.bound else ()
        return (row["key"], row["window_start"], row["window_end"], *home)

    def _row(self, record: Record) -> dict[str, Any]:
        home = record.home
        before = self.times.get(home, -1)
        self.times[home] = max(before, record.timestamp)
        value = selected(self.settings, record.value)
        return {
            "kind": kernel.RECORD,
            "hash": key_hash("/".join(map(str, home)) if self.stage.bound else record.key),
            "key": record.key,
            "updated_seq": 0,
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "turn": record.offset,
            "part": record.group,
            "timestamp": record.timestamp,
            "time": before,
            "source": record.source,
            "passes": self._passes(value),
            "value": value,
        }

    def _passes(self, value: dict[str, Any] | None) -> bool:
        """The stage's `where` on the record itself, which means something for `latest` alone."""
        if value is None or self.settings.where is None or self.settings.reduce != "latest":
            return True
        return self.settings.where(value) is True

    def _decide(self, records: Sequence[dict[str, Any]], batch: kernel.Batch) -> None:
        self.seq += 1
        emitted, changed = [], []
        self.decided, self.rows = [], []
        for decided in self._decided(records, batch):
            if decided.num_rows and decided.column("kind")[0].as_py() == kernel.EMISSION:
                self.decided.append(decided)
            returned = decided.to_pylist()
            self.rows += returned
            for row in returned:
                if row["kind"] == kernel.EMISSION:
                    emitted.append(row)
                elif row["kind"] == kernel.STATE:
                    changed.append({name: row[name] for name in self.schema.names if name in row})
                elif row["kind"] == kernel.REFUSED:
                    self.refused.append(_refused(row))
                elif row["kind"] == kernel.COUNTS:
                    self.counts.update(json.loads(row["counts"]))
        self.state += [{**row, "updated_seq": self.seq} for row in changed]
        if self.compacting:
            self.state = self._compacted()
        emitted.sort(key=lambda row: (row["key"], row["ordinal"]))
        self.emissions += [_emission(row) for row in emitted]

    def _decided(self, records: Sequence[dict[str, Any]], batch: kernel.Batch) -> list[pa.RecordBatch]:
        if self.dropping and self.stage.ignores_repeats and not batch.replay:
            counts = kernel.Counts()
            remaining = self._without_repeats(records, counts)
            decided = self._decide_rows(remaining, batch)
            (last,) = (json.loads(row["counts"]) for row in decided[-1].to_pylist())
            if not has_hidden_values(last):
                self.counts.update(counts)
                self.dropped += len(records) - len(remaining)
                return decided
        return self._decide_rows(records, batch)

    def _without_repeats(
        self, records: Sequence[dict[str, Any]], counts: kernel.Counts
    ) -> list[dict[str, Any]]:
        """Each partition's records without repeated ones, as many at once as an Arrow batch has."""
        repeats: dict[Any, Repeats] = {}
        remaining = []
        for start in range(0, len(records), self.arrow_rows):
            for home, rows in groupby(records[start : start + self.arrow_rows], _home):
                own = repeats.setdefault(home, Repeats(self.stage.emit.compared, counts))
                remaining += own.without(
                    pa.RecordBatch.from_pylist(list(rows), schema=self.schema)
                ).to_pylist()
        return remaining

    def _decide_rows(self, records: Sequence[dict[str, Any]], batch: kernel.Batch) -> list[pa.RecordBatch]:
        rows = self._sorted([*self._looked_up(records, batch), *records])
        return list(kernel.decide(self.stage, rows, batch))

    def _looked_up(self, records: Sequence[dict[str, Any]], batch: kernel.Batch) -> list[dict[str, Any]]:
        if not self.sparing or self.stage.bound or batch.drain:
            return self.state
        keys = {row["key"] for row in records}
        due = {row["key"] for row in self.newest() if row["due_at"] is not None and _is_due(row, batch)}
        return [row for row in self.state if row["key"] in keys | due]

    def _sorted(self, rows: Sequence[dict[str, Any]]) -> list[pa.RecordBatch]:
        """Rows as Spark brings them: sorted by their hash, in small Arrow batches. Those of one hash are in
        reverse, as if Spark had fetched the latest first; of a bounded stage, they are in their order."""
        latest_first = list(reversed(rows))
        by_hash = sorted(latest_first, key=lambda row: int(row["hash"]))
        if self.stage.bound:
            by_hash = sorted(rows, key=lambda row: [row[name] for name in kernel.order(self.stage)])
        table = pa.Table.from_pylist(by_hash, schema=self.schema)
        whole = table.to_batches() or [pa.RecordBatch.from_pylist([], schema=self.schema)]
        return [table.slice(at, self.arrow_rows) for table in whole for at in _starts(table, self.arrow_rows)]


def _home(row: Mapping[str, Any]) -> Partition:
    return row["topic"], row["partition"]


def _is_due(row: dict[str, Any], batch: kernel.Batch) -> bool:
    """Return whether a row is due, as `spark.state.due_rows` does."""
    return bool(row["due_at"] <= batch.ends.get((row["topic"], row["partition"]), batch.least_end))


def _starts(batch: pa.RecordBatch, size: int) -> range:
    return range(0, max(batch.num_rows, 1), size)


def _window(row: dict[str, Any]) -> tuple[int, int] | None:
    return None if row["window_start"] is None else (row["window_start"], row["window_end"])


def _emission(row: dict[str, Any]) -> Emission:
    return Emission(row["key"], row["value"], row["timestamp"], _window(row), row["reason"], row["at"])


def _refused(row: dict[str, Any]) -> Refused:
    position = (row["topic"], row["partition"], row["offset"])
    return Refused(row["key"], row["value"], row["timestamp"], _window(row), position)


def _by_position(record: Record) -> tuple[str, int, int, int]:
    return (record.topic, record.partition, record.offset, record.group)
