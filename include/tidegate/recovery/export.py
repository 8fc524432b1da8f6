"""Files with the records of a batch that a sink never gets: what is left of its outbox, as JSON lines."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidegate.core.counts import outgoing
from tidegate.core.json_columns import json_texts
from tidegate.errors import LakeDamaged, LakeUnavailable
from tidegate.lake.datafile import read_files
from tidegate.lake.outbox import REASON, SOURCE, TIMESTAMP, VALUE, WINDOW
from tidegate.lake.schema import KEY
from tidegate.recovery.unsent import UnsentBatch
from tidegate.sinks import OpenSink

_COLUMNS = (KEY, *WINDOW, TIMESTAMP, REASON, SOURCE)


def export_records(folder: Path, batch: UnsentBatch, sink: OpenSink[Any]) -> tuple[Path, int]:
    """Write all records that a batch has for a sink, and return the file and how many records are in it.

    The first line says which batch it is, which offsets it has read, and which files could not be read: the
    records of those are not here. Each other line is a record. Raises LakeUnavailable.
    """
    name = f"batch-{batch.seq}-{sink.name}".replace(":", "-").replace("/", "-")
    path = folder / str(batch.plan.stream) / f"{name}.jsonl"
    rows, unreadable = _records(batch, sink)
    lines = [json.dumps(_header(batch, sink, unreadable)), *rows]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in lines))
    except OSError as error:
        raise LakeUnavailable(
            f"The records of batch {batch.seq} cannot be exported to {path}: {error}",
            "Make TIDEGATE_HOME writable. Nothing was given up.",
        ) from error
    return path, len(rows)


def records_of(batch: UnsentBatch, sink: OpenSink[Any]) -> int:
    """Return how many records a batch has for a sink, also where its files are lost."""
    try:
        return sink.outbox(batch.plan, batch.attempt).emitted
    except LakeDamaged:
        return outgoing(batch.attempt.stage_counts(sink.stage.name)) if sink.gets_emissions else 0


def _records(batch: UnsentBatch, sink: OpenSink[Any]) -> tuple[list[str], list[str]]:
    """The lines of the records, and the files that cannot be read."""
    lines: list[str] = []
    unreadable: list[str] = []
    try:
        outbox = sink.outbox(batch.plan, batch.attempt)
    except LakeDamaged as error:
        return lines, [error.what]
    for file in outbox.files:
        try:
            rows = read_files(outbox.store, [file])
        except LakeDamaged:
            unreadable.append(file.path)
        else:
            lines += _emissions(rows) if sink.gets_emissions else _quarantined(rows)
    return lines, unreadable


def _emissions(rows: pa.Table) -> Iterator[str]:
    """Values as the JSON text that they have in every place where people see them; null for a deletion."""
    values = json_texts(rows[VALUE].combine_chunks()).to_pylist()
    for row, value in zip(rows.select(_COLUMNS).to_pylist(), values, strict=True):
        yield f'{json.dumps(row)[:-1]}, "value": {value or "null"}}}'


def _quarantined(rows: pa.Table) -> Iterator[str]:
    for row in rows.to_pylist():
        yield json.dumps(row, default=_text)


def _text(value: object) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def _header(batch: UnsentBatch, sink: OpenSink[Any], unreadable: list[str]) -> dict[str, Any]:
    plan = batch.plan
    ranges = [
        {"topic": read.topic, "partition": read.partition, "start": read.start, "end": read.end}
        for read in plan.ranges
    ]
    stream = {"pipeline": plan.stream.pipeline, "generation": plan.stream.generation, "batch": plan.seq}
    return stream | {"sink": sink.name, "read": ranges, "unreadable_files": unreadable}
