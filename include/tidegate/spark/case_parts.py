"""The parts of a case file's run: its records in place of Kafka's, stages in memory, and the outcome."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate import kernel
from tidegate.errors import TidegateError
from tidegate.formats import FrameDecoder, Records
from tidegate.formats.records import PART
from tidegate.kernel.json_text import json_texts
from tidegate.kernel.keys import GREATEST_HASH, real_keys
from tidegate.kernel.repeats import Repeats
from tidegate.kernel.rows import Position, with_column
from tidegate.kernel.stage import Place
from tidegate.kernel.tables import is_table
from tidegate.model.sources import Sources
from tidegate.spark.kernel_task import BY_KEY_AND_RANK, KernelTask, numbered_by_key, with_value
from tidegate.spark.shuffle import Times, times_before, times_of_tables, value_column
from tidegate.spark.state import to_kernel, to_stored
from tidegate.spark.steps import record_layout
from tidegate.storage.schema import entry_columns, newest_rows
from tidegate.yaml.cases import CaseRecord, CaseStep, LookupRows, Tick
from tidegate.yaml.tree import read_exactly

_LATEST_MS = 2**62
"""The end of the future without a clock, in epoch ms: windows and timers after it may have no number."""
Span = tuple[int, int]
"""Consecutive numbers: the first, and the one after the last."""
RowNumbers = npt.NDArray[np.int64]
_TRACE_COLUMNS = ("key", "topic", "partition", "offset", "timestamp", "reason", "at", "trace")
_QUARANTINE_COLUMNS = ("topic", "partition", "offset", "timestamp", "input")


@dataclass(frozen=True)
class Cut:
    """One way to cut records into batches.

    Args:
        spans: the record numbers of each batch, in order and without gaps.
        clocks: the clock of each batch, epoch ms; None: it has none.
    """

    spans: tuple[Span, ...]
    clocks: tuple[int | None, ...]


class CaseInput:
    """Records and changes of tables, numbered 0, 1, 2 … in their order, and ticks between them.

    `ticks` has for each tick the number of records before it, and its clock in epoch ms.
    """

    def __init__(self, case_inputs: Iterable[CaseStep]) -> None:
        self.steps: list[CaseRecord | LookupRows] = []
        self.ticks: list[tuple[int, int]] = []
        for case_input in case_inputs:
            if isinstance(case_input, Tick):
                self.ticks.append((len(self.steps), case_input.clock_ms))
            else:
                self.steps.append(case_input)

    @property
    def tables(self) -> dict[int, LookupRows]:
        """The changes of tables, by their numbers: a change has a number as a record has one."""
        return {number: step for number, step in enumerate(self.steps) if isinstance(step, LookupRows)}

    def cut(self, places: Iterable[int]) -> Cut:
        """Return the batches that end before the records with these numbers, and before changes of tables,
        without a clock, and at ticks.

        Example: three records without ticks and `cut([1])` give the spans `((0, 1), (1, 3))`.
        """
        number = len(self.steps)
        starts_of_batches = {*places, *self.tables} - {end for end, _ in self.ticks if end in self.tables}
        ends: list[tuple[int, int | None]] = [
            (place, None) for place in starts_of_batches if 0 < place < number
        ]
        # The sort is stable: after a cut at the place of a tick, the tick ends a batch without records.
        ends = sorted([*ends, *self.ticks], key=lambda end: end[0])
        # Records after the last tick are a batch, too; a case without any input has one empty batch.
        if not ends or ends[-1][0] < number:
            ends.append((number, None))
        starts = [0, *(end for end, _ in ends)]
        spans = tuple((start, end) for start, (end, _) in zip(starts, ends, strict=False))
        return Cut(spans, tuple(clock for _, clock in ends))

    def decoded(self, sources: Sources, name: str, keeps_input: bool) -> pa.RecordBatch:
        """Return rows of `FrameDecoder` of the records of a source, in their order.

        `__turn` is a record's number: the order in a case is the order in the partition, whatever the offsets
        are.
        """
        layout = record_layout(sources[name])
        # `concat_batches` refuses an empty list, and a case may have no records.
        pieces = [pa.RecordBatch.from_pylist([], FrameDecoder(layout, None, keeps_input).schema)]
        for (believed_until_ms, topic, partition), numbers in self._numbers_by_origin().items():
            if sources.name_of(topic) == name:
                decoder = FrameDecoder(layout, believed_until_ms, keeps_input)
                pieces += decoder.decode(self._numbered(topic, partition, numbers))
        return pa.concat_batches(pieces).sort_by([("__turn", "ascending"), (PART, "ascending")])

    def _numbers_by_origin(self) -> dict[tuple[int, str, int], list[int]]:
        """Return the records of each topic-partition between two ticks; keys begin with the end of believed
        timestamps.
        """
        numbers: dict[tuple[int, str, int], list[int]] = {}
        for number, (record, clock) in enumerate(zip(self.steps, self._clocks(), strict=True)):
            if isinstance(record, LookupRows):
                continue
            believed_until_ms = _LATEST_MS if clock is None else clock + kernel.FUTURE_MS
            numbers.setdefault((believed_until_ms, record.topic, record.partition), []).append(number)
        return numbers

    def _clocks(self) -> Iterator[int | None]:
        """Yield per record the clock of the tick that ends its batch; None after the last tick."""
        start = 0
        for end, clock in self.ticks:
            yield from [clock] * (end - start)
            start = end
        yield from [None] * (len(self.steps) - start)

    def _numbered(self, topic: str, partition: int, numbers: Sequence[int]) -> Records:
        """Return records whose turns are their numbers."""
        steps = [self.steps[number] for number in numbers]
        records = [step for step in steps if isinstance(step, CaseRecord)]
        return Records(
            topic,
            partition,
            [record.offset for record in records],
            [record.timestamp for record in records],
            [record.key.encode() if isinstance(record.key, str) else record.key for record in records],
            [record.payload for record in records],
            [[(name, text.encode()) for name, text in record.headers] for record in records],
            turns=numbers,
        )


class StreamTimes:
    """The times of topic-partitions, none at first, advanced by rows of the kernel."""

    def __init__(self) -> None:
        self._times: dict[Place, int] = {}
        self.firsts: dict[Place, int] = {}
        """The first usable timestamp of each topic-partition."""

    @property
    def now(self) -> dict[Place, int]:
        """The times of the topic-partitions that have had rows."""
        return dict(self._times)

    def advance(self, rows: pa.RecordBatch) -> pa.Int64Array:
        """Return the time before each row. Rows of one topic-partition are in order."""
        timestamps, usable = rows.column("timestamp"), pc.not_equal(rows.column("kind"), kernel.QUARANTINED)
        before = np.empty(rows.num_rows, np.int64)
        for place, numbers in _by_place(rows):
            own = pa.array(numbers)
            for timestamp in timestamps.take(own).filter(usable.take(own)).to_pylist()[:1]:
                self.firsts.setdefault(place, timestamp)
            before[numbers], self._times[place] = times_before(
                timestamps.take(own), usable.take(own), self._times.get(place, -1)
            )
            if is_table(place[0]) and "rank" in rows.schema.names:
                before[numbers] = times_of_tables(rows.column("rank").take(own))
        return _by_emission(rows, pa.array(before))


def _by_emission(rows: pa.RecordBatch, before: pa.Int64Array) -> pa.Int64Array:
    """Return the time before each row; both rows of an emission that replaces another one have one time."""
    if "change" not in rows.schema.names or not rows.num_rows:
        return before
    turn = rows.column("turn").to_numpy()
    first = np.flatnonzero(np.append(True, turn[1:] != turn[:-1]))
    return before.take(pa.array(np.repeat(first, np.diff(np.append(first, len(turn))))))


def _by_place(rows: pa.RecordBatch) -> Iterator[tuple[Place, RowNumbers]]:
    """Yield the numbers of the rows of each topic-partition."""
    topics, partitions = rows.column("topic"), rows.column("partition")
    places = pc.binary_join_element_wise(topics, partitions.cast(pa.string()), "/").dictionary_encode()
    codes = places.indices.to_numpy()
    for code in range(len(places.dictionary)):
        numbers = np.flatnonzero(codes == code)
        yield (topics[numbers[0]].as_py(), partitions[numbers[0]].as_py()), numbers


def without_repeats(
    rows: pa.RecordBatch, compared: tuple[str, ...], dropped: kernel.Counts
) -> pa.RecordBatch:
    """Return the rows of a batch without the records that repeat others of their topic-partition.

    Args:
        compared: the columns that count.
        dropped: gets what became of the others.
    """
    valued = with_value(0, rows)
    parts = [Repeats(compared, dropped).without(valued.take(pa.array(own))) for _, own in _by_place(rows)]
    return pa.concat_batches([valued.slice(0, 0), *parts]).rename_columns(rows.schema.names)


class StageRun:
    """One run of a stage by its kernel task, with its state in memory.

    `counts`, `traces`, `quarantined` and `late` records are those of all batches so far; a trace is a
    mapping of the kernel's trace row.
    """

    def __init__(self, task: KernelTask) -> None:
        self.counts = kernel.Counts()
        self.traces: list[Mapping[str, Any]] = []
        self.quarantined: list[Mapping[str, Any]] = []
        self.late: list[pa.Table] = []
        self._task = task
        self._bounded = task.logic.bound is not None
        self._state = task.state.stored.empty_table()
        self._changed: list[pa.Table] = []
        self._seq = 0
        self._floor = -1
        self._starts: Times = {}
        self._tables: Mapping[str, str] | None = None

    def feed(self, starts: Times, tables: Mapping[str, str]) -> None:
        """Let the next batch have keys of tables that the stage expects.

        Args:
            starts: the times before it, as `shuffle.start_times` returns them.
            tables: the topics of the tables -> their names.
        """
        self._starts, self._tables = starts, tables

    @property
    def values(self) -> pa.Table:
        """The values of the live entries."""
        return self._state.filter(self._state["live"])["value"].combine_chunks()

    @property
    def name(self) -> str:
        """The name of the stage."""
        return self._task.name

    def copy(self) -> StageRun:
        """Return a run that goes on from here by itself."""
        run = copy(self)
        run.counts, run.traces, run._changed = kernel.Counts(self.counts), list(self.traces), []
        run.quarantined, run.late = list(self.quarantined), list(self.late)
        return run

    def apply(self, rows: pa.RecordBatch, times: Times, clock: int | None) -> pa.Table:
        """Return the emissions of one batch, each key's in order. Raises the errors of the kernel.

        `times` has the stream times at the batch's end; `clock` is in epoch ms, or None.
        """
        self._seq += 1
        prior = _MemoryState(to_kernel(self._state, self._task.rows))
        by_hash, batch = rows.sort_by("hash"), self._batch(times, clock)
        emitted = list(self._task.decide([by_hash], batch, prior, self._put))
        self._state = newest_rows(
            pa.concat_tables([self._state, *self._changed]), entry_columns(self._bounded)
        )
        self._changed.clear()
        # As in a head, a clock never goes back: a later batch without a clock has at least this one.
        self._floor = max(self._floor, -1 if clock is None else clock)
        return self._in_order(pa.Table.from_batches(emitted, self._task.output.forwarding.schema))

    def _put(self, decided: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        kind = decided.column("kind")[0].as_py()
        if kind == kernel.EMISSION:
            yield from self._task.output.forwarding.rows(decided)
        elif kind == kernel.STATE:
            stored = to_stored(decided, self._state.schema, self._seq)
            self._changed.append(pa.Table.from_batches([stored]))
        elif kind == kernel.LATE:
            self.late.append(pa.Table.from_batches([kernel.late_emissions(decided)]))
        elif kind == kernel.COUNTS:
            self.counts.include(json.loads(decided.column("counts")[0].as_py()))
        elif kind == kernel.TRACE:
            self.traces += decided.select(_TRACE_COLUMNS).to_pylist()
        elif kind == kernel.QUARANTINED and self._task.batch.trace:
            self.quarantined += decided.select(_QUARANTINE_COLUMNS).to_pylist()

    def _batch(self, times: Times, clock: int | None) -> kernel.Batch:
        batch = replace(self._task.batch, times=times)
        if self._task.logic.expects:
            batch = replace(batch, tables=self._tables or {})
        if self._task.logic.clock == "run":
            batch = replace(batch, clock=clock, floor=self._floor)
        batch, self._tables = batch.started(self._starts), None
        return batch

    def _in_order(self, emitted: pa.Table) -> pa.Table:
        """Return one sequence per key: in a bounded stage each topic-partition has its own sequence."""
        if not self._bounded:
            return emitted
        by_rank = emitted.sort_by([(name, "ascending") for name in BY_KEY_AND_RANK])
        return pa.Table.from_batches(numbered_by_key(by_rank.to_batches()), emitted.schema)


class _MemoryState:
    """A `kernel.PriorState` of rows in memory, sorted by hash; it gives all of them."""

    last_hash = GREATEST_HASH

    def __init__(self, rows: pa.RecordBatch) -> None:
        self._rows = rows

    def next_bound(self, up_to: int) -> int:
        return up_to

    def take(self, hashes: RowNumbers, up_to: int, only_keys: pa.StringArray | None) -> pa.RecordBatch:
        del hashes, only_keys
        end = int(np.searchsorted(self._rows.column("hash").to_numpy(), up_to, side="right"))
        taken, self._rows = self._rows.slice(0, end), self._rows.slice(end)
        return taken


@dataclass(frozen=True)
class Emitted:
    """One emission of a stage.

    Args:
        key: the key's text; None: it has none.
        value: the emitted columns as a JSON object; None: a deletion.
        timestamp: of the emission, epoch ms.
        window: start and end, epoch ms; None without a window.
        reason: the reason that the strategy gives.
        at: when it happened, epoch ms.
        source: the position of the record that caused it.
    """

    key: str | None
    value: Any
    timestamp: int
    window: tuple[int, int] | None
    reason: str
    at: int
    source: Position


@dataclass(frozen=True)
class Fate:
    """The fate of a record in a pass, or of a value that was due there.

    Args:
        what: `record`, `unsent` or `quarantined`, as in `TraceEvent`.
        timestamp: of the record, epoch ms.
        fate: what became of it.
        at: when that happened, epoch ms.
        value: the columns that the pass selects of the record, or of the value.
        previous: the state before, as in `TraceEvent`.
    """

    what: str
    pass_name: str
    key: str | None
    source: Position
    timestamp: int
    fate: str
    at: int
    value: Any
    previous: Any


@dataclass
class Outcome:
    """The outcome: emissions of the last stage, in order per key, and the fates of the records;
    or the error. `stages` has the emissions of other stages that were asked for.
    """

    emissions: list[Emitted] = field(default_factory=list)
    counts: kernel.Counts = field(default_factory=kernel.Counts)
    fates: list[Fate] = field(default_factory=list)
    error: TidegateError | None = None
    stages: dict[str, list[Emitted]] = field(default_factory=dict)

    def by_key(self, stage: str | None = None) -> dict[str, list[Emitted]]:
        """Return key -> its emissions in a stage (None: the last one), in order; `null` for no key."""
        by_key: dict[str, list[Emitted]] = {}
        for emission in self.emissions if stage is None else self.stages.get(stage, ()):
            by_key.setdefault("null" if emission.key is None else emission.key, []).append(emission)
        return by_key

    @property
    def all_by_key(self) -> list[dict[str, list[Emitted]]]:
        """The emissions by key of the last stage, and of the others that were asked for."""
        return [self.by_key(), *map(self.by_key, self.stages)]

    def include(self, pass_name: str, run: StageRun) -> None:
        """Add the counts and traces of a pass."""
        self.counts.include(run.counts)
        self.fates += [_fate(pass_name, row) for row in run.traces]
        self.fates += [_quarantined(pass_name, row) for row in run.quarantined]


def emitted_of(
    batches: Sequence[pa.Table], values: str = value_column(0), may_lack_keys: bool = False
) -> list[Emitted]:
    """Return the emissions of batches, one after the other, as a kernel task forwards them.

    Args:
        batches: The emissions.
        values: The column with their values.
        may_lack_keys: Whether some keys stand for none.
    """
    if not any(table.num_rows for table in batches):
        return []
    rows = pa.concat_tables(batches)
    if may_lack_keys:
        rows = with_column(rows, "key", real_keys(rows["key"].combine_chunks()))
    texts = json_texts(rows[values].combine_chunks()).to_pylist()
    return [
        _emitted(row, text) for row, text in zip(rows.drop_columns([values]).to_pylist(), texts, strict=True)
    ]


def _emitted(row: Mapping[str, Any], text: str | None) -> Emitted:
    window = None if row["window_start"] is None else (row["window_start"], row["window_end"])
    value = None if text is None else read_exactly(text)
    return Emitted(row["key"], value, row["timestamp"], window, row["reason"], row["at"], _source(row))


def _fate(pass_name: str, row: Mapping[str, Any]) -> Fate:
    trace = read_exactly(row["trace"])
    return Fate(
        "unsent" if "unsent" in trace else "record",
        pass_name,
        row["key"],
        _source(row),
        row["timestamp"],
        row["reason"],
        row["at"],
        trace["value"],
        trace["known"],
    )


def _quarantined(pass_name: str, row: Mapping[str, Any]) -> Fate:
    fate, timestamp = f"quarantined: {row['input']['reason']}", row["timestamp"]
    # without a key: what cannot be read may have none
    place = pass_name, None, _source(row)
    return Fate("quarantined", *place, timestamp, fate, timestamp, value=None, previous=None)


def _source(row: Mapping[str, Any]) -> Position:
    return row["topic"], row["partition"], row["offset"]
