"""Run a stage over batch after batch of rows in memory, where its state stays from one batch to the next."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from tidegate import kernel
from tidegate.spark.source import Times
from tidegate.spark.state import stored_schema, to_kernel, to_stored
from tidegate.spark.task_rows import BY_KEY_AND_RANK, numbered_by_key
from tidegate.storage.schema import entry_columns, newest_rows

_TRACE = ("key", "topic", "partition", "offset", "timestamp", "reason", "at", "trace")


class StageRun:
    """One run of a stage.

    `counts` and `traces` are those of all batches so far; a trace is a mapping of the kernel's trace row.

    Args:
        logic: the stage.
        rows: the schema of the kernel's input.
        trace: whether the kernel traces its decisions; otherwise `traces` stays empty.
    """

    def __init__(self, logic: kernel.Stage, rows: pa.Schema, trace: bool) -> None:
        self.counts = kernel.Counts()
        self.traces: list[Mapping[str, Any]] = []
        self._logic = logic
        self._trace = trace
        self._rows = rows
        self._emitted = kernel.output_schema(logic, rows)
        self._stored = stored_schema(logic, rows)
        self._state = self._stored.empty_table()
        self._seq = 0
        self._floor = -1

    def apply(self, rows: pa.RecordBatch, times: Times, clock: int | None) -> pa.Table:
        """Return the emissions of one batch, each key's in order. Raises the errors of the kernel.

        `times` has the stream times at the batch's end; `clock` is in epoch ms, or None.
        """
        self._seq += 1
        emitted = [self._emitted.empty_table()]
        states = [self._state]
        for decided in kernel.decide(self._logic, [self._with_state(rows)], self._batch(times, clock)):
            kind = decided.column("kind")[0].as_py() if decided.num_rows else None
            if kind == kernel.EMISSION:
                emitted.append(pa.Table.from_batches([kernel.ranked(decided, self._logic.bound is not None)]))
            elif kind == kernel.STATE:
                states.append(pa.Table.from_batches([to_stored(decided, self._stored, self._seq)]))
            elif kind == kernel.COUNTS:
                self.counts.include(json.loads(decided.column("counts")[0].as_py()))
            elif kind == kernel.TRACE:
                self.traces += decided.select(_TRACE).to_pylist()
        self._state = newest_rows(pa.concat_tables(states), entry_columns(self._logic.bound is not None))
        # As in a head, a clock never goes back: a later batch without a clock has at least this one.
        self._floor = max(self._floor, -1 if clock is None else clock)
        return self._in_order(pa.concat_tables(emitted))

    def _with_state(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        combined = pa.concat_batches([to_kernel(self._state, self._rows), rows])
        return combined.sort_by([(name, "ascending") for name in kernel.order(self._logic)])

    def _batch(self, times: Times, clock: int | None) -> kernel.Batch:
        batch = kernel.Batch(times, trace=self._trace)
        if self._logic.clock == "stream":
            return batch
        return replace(batch, clock=clock, floor=self._floor)

    def _in_order(self, emitted: pa.Table) -> pa.Table:
        """Return one sequence per key: in a bounded stage each topic-partition has its own sequence."""
        if self._logic.bound is None:
            return emitted
        by_rank = emitted.sort_by([(name, "ascending") for name in BY_KEY_AND_RANK])
        return pa.Table.from_batches(numbered_by_key(by_rank.to_batches()), self._emitted)
