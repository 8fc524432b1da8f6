"""Report the kernel's decisions about one key, in place of writing: for explanations."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidegate import kernel
from tidegate.kernel.json_columns import json_texts
from tidegate.spark.kernel_task import Forwarding
from tidegate.spark.reports import TraceReport
from tidegate.spark.task_rows import forwarded

_COLUMNS = (
    "ordinal",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "at",
    "reason",
    "window_start",
    "window_end",
)


@dataclass(frozen=True)
class TracedOutput:
    """A `StageOutput` that keeps the kernel's rows about a key.

    Args:
        stage: the name of the pass.
        key: the key. Quarantined records have none: records whose Kafka key is its text count.
        packed: the stage drops repeated values; its keys are its own, and the record's key is within its
            value.
        forwarding: the rows that go on to the next pass.
        emissions: whether emissions are kept, too.
    """

    stage: str
    key: str
    packed: bool
    forwarding: Forwarding
    emissions: bool = True

    def open(self, slot: int) -> AbstractContextManager[TracedTask]:
        """Return the output of one try of a task."""
        return nullcontext(TracedTask(self, slot))

    def before_merge(self, forwarding: Forwarding) -> TracedOutput:
        """Return an output that only forwards emissions: the `MergeTask` reports them."""
        return replace(self, forwarding=forwarding, emissions=False)


class TracedTask:
    """A `TaskOutput` that writes nothing: rows about the key go into its report, all others nowhere."""

    def __init__(self, output: TracedOutput, slot: int) -> None:
        self._output = output
        self._slot = slot
        self._rows: list[dict[str, Any]] = []

    def put(self, decided: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Keep the rows about the key, and yield emissions for the next pass."""
        # A `MergeTask` passes on emissions only, which have no column `kind` any more.
        kind = decided.column("kind")[0].as_py() if "kind" in decided.schema.names else kernel.EMISSION
        if kind == kernel.TRACE:
            self._keep(kind, self._is_about_key(decided), decided)
        elif kind == kernel.REFUSED:
            self._keep(kind, pc.equal(decided.column("key"), self._output.key), decided)
        elif kind == kernel.QUARANTINED:
            keys = pc.struct_field(decided.column("input"), "key")
            self._keep(kind, pc.equal(keys, self._output.key.encode()), decided)
        elif kind == kernel.EMISSION:
            if self._output.emissions:
                self._keep(kind, self._is_about_key(decided), decided)
            if self._output.forwarding.emissions:
                yield forwarded(decided, self._output.forwarding.schema)

    def report(self) -> TraceReport:
        """Return a report of the kept rows."""
        return TraceReport(self._output.stage, self._slot, tuple(self._rows))

    def _is_about_key(self, rows: pa.RecordBatch) -> pa.BooleanArray:
        if not self._output.packed:
            return pc.equal(rows.column("key"), self._output.key)
        traces = map(json.loads, rows.column("trace").to_pylist())
        return pa.array(
            [trace["value"]["frame"]["__key"] == self._output.key for trace in traces], pa.bool_()
        )

    def _keep(self, kind: int, mask: pa.BooleanArray, rows: pa.RecordBatch) -> None:
        chosen = rows.filter(pc.fill_null(mask, False))
        if not chosen.num_rows:
            return
        columns = {name: chosen.column(name).to_pylist() for name in _COLUMNS}
        columns["value"] = json_texts(chosen.column("value")).to_pylist()
        columns |= {
            name: chosen.column(name).to_pylist()
            for name in ("trace", "input")
            if name in chosen.schema.names
        }
        for row in pa.RecordBatch.from_pydict(columns).to_pylist():
            self._rows.append({"kind": kind, **_readable(row)})


def _readable(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row without bytes, which JSON does not support."""
    record = row.pop("input", None)
    if record is not None:
        text = record["value"]
        row |= {"unusable": record["reason"], "text": None if text is None else text.decode(errors="replace")}
    return row
