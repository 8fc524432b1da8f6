"""Reports of tasks to the driver and to each other: rows among the rows, so that a batch needs only one job.

A report is a row with a text in `__report`, no key and the least hash. It reaches each task of the next pass
before all other rows; the first of these tasks forwards it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import chain
from typing import Any

import pyarrow as pa

from tidegate.spark.shuffle import LEAST_HASH, REPORT, SLOT
from tidegate.storage.manifest import DataFile


@dataclass(frozen=True)
class SliceReport:
    """The counts of a slice of a topic-partition.

    Args:
        records: records of Kafka.
        rows: rows after explosion.
        empty: those of the rows that had nothing to explode.
        unkeyed: rows that bypass the pass which drops repeated records.
        time: the stream time after the slice, epoch ms; None: time is not kept.
        usable: rows that are neither in quarantine nor deletions.
        filled: declared column -> rows with a value.
        undeclared: field -> records that have it, of those that were `sampled`.
    """

    topic: str
    partition: int
    start: int
    records: int
    rows: int
    empty: int
    unkeyed: int
    time: int | None
    usable: int = 0
    filled: Mapping[str, int] = field(default_factory=dict)
    undeclared: Mapping[str, int] = field(default_factory=dict)
    sampled: int = 0


@dataclass(frozen=True)
class TimeReport:
    """The stream time of a topic-partition after the emissions that a later stage reads.

    Args:
        stage: the later stage.
        time: epoch ms.
    """

    stage: str
    topic: str
    partition: int
    time: int


@dataclass(frozen=True)
class TaskReport:
    """The counts and files of one task of a stage.

    Args:
        slot: the number of the task in its stage.
        counts: metric -> number.
        files: the files that it has completed.
    """

    stage: str
    slot: int
    counts: Mapping[str, int]
    files: tuple[DataFile, ...]


@dataclass(frozen=True)
class TraceReport:
    """The rows about a key of one task of a stage: see `traced`."""

    stage: str
    slot: int
    rows: tuple[Mapping[str, Any], ...]


Report = SliceReport | TimeReport | TaskReport | TraceReport
_KINDS = {kind.__name__: kind for kind in (SliceReport, TimeReport, TaskReport, TraceReport)}


def to_text(report: Report) -> str:
    """Return a report as JSON."""
    return json.dumps({"is": type(report).__name__} | asdict(report))


def from_text(text: str) -> Report:
    """Return the report of a JSON text, the inverse of `to_text`.

    Args:
        text: a text of `to_text`, of the same version: reports are never stored.
    """
    document: dict[str, Any] = json.loads(text)
    kind = _KINDS[document.pop("is")]
    if kind is TaskReport:
        document["files"] = tuple(DataFile(**file) for file in document["files"])
    report: Report = kind(**document)
    return report


def rows_of(reports: Iterable[Report], schema: pa.Schema, copies: int) -> Iterator[pa.RecordBatch]:
    """Yield reports as rows, all of them for each task of the next pass.

    Args:
        reports: the reports; without any, nothing is yielded.
        schema: the columns of the rows; all but those of reports are null.
        copies: the number of tasks of the next pass.
    """
    texts = [to_text(report) for report in reports]
    if not texts:
        return
    # Each task of the next pass needs all stream times, so each gets all reports.
    number = len(texts) * copies
    columns = {
        REPORT: pa.array(texts * copies),
        SLOT: pa.array([slot for slot in range(copies) for _ in texts], pa.int32()),
        **dict.fromkeys(("hash", "__hash"), pa.repeat(pa.scalar(LEAST_HASH, pa.int64()), number)),
    }
    arrays = [
        columns[field.name] if field.name in columns else pa.nulls(number, field.type) for field in schema
    ]
    yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def split_reports(
    batches: Iterable[pa.RecordBatch],
) -> tuple[list[Report], Iterator[pa.RecordBatch]]:
    """Return the reports at the head of a task's rows, and the rows after them: at least one batch, maybe
    empty.
    """
    reports: list[Report] = []
    remaining = iter(batches)
    last: list[pa.RecordBatch] = []
    for batch in remaining:
        texts = batch.column(REPORT)
        leading = batch.num_rows - texts.null_count
        reports += map(from_text, texts.slice(0, leading).to_pylist())
        last = [batch.slice(leading)]
        if leading < batch.num_rows:
            break
    return reports, chain(last, remaining)


def end_times(
    stage: str, reads_source: bool, times: Mapping[tuple[str, int], int], reports: Iterable[Report]
) -> dict[tuple[str, int], int]:
    """Return the stream time of topic-partitions after a stage's records: the time before, raised by reports.

    Slices report to the passes that read the source, a `TimeReport` to the later stage that it names.

    Args:
        stage: the stage.
        reads_source: whether it reads records, or is a filter before such a stage.
        times: (topic, partition) -> the time before the batch, epoch ms.
        reports: all reports that its tasks got.
    """
    ends = dict(times)
    for report in reports:
        if not isinstance(report, (SliceReport, TimeReport)):
            continue
        is_relevant = reads_source if isinstance(report, SliceReport) else report.stage == stage
        if is_relevant and report.time is not None:
            place = (report.topic, report.partition)
            ends[place] = max(report.time, ends.get(place, -1))
    return ends
