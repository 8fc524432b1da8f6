"""Find a decided batch that cannot be published, the sinks that lack it, and the cause.

What a sink never gets of it is exported as JSON lines.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidegate import errors
from tidegate.app import App
from tidegate.batch.publish import lacking_batches
from tidegate.errors import (
    LakeDamaged,
    LakeUnavailable,
    LedgerMismatch,
    LedgerUnavailable,
    OutcomeUnknown,
    Permanent,
    ProgressLost,
    SettingsInvalid,
    TidegateError,
    TopicRecreated,
)
from tidegate.kernel.counts import outgoing
from tidegate.kernel.json_text import json_texts
from tidegate.ledger import Attempt, Failure, LeasedLedger, LedgerReader, Plan, Stream
from tidegate.ledger.planned import planned_pipeline, unpublished_sinks
from tidegate.recovery.remedy import Situation
from tidegate.sinks.port import OpenSink
from tidegate.storage.datafile import read_files
from tidegate.storage.schema import KEY, REASON, SOURCE, TIMESTAMP, VALUE, WINDOW

_COLUMNS = (KEY, *WINDOW, TIMESTAMP, REASON, SOURCE)


@dataclass(frozen=True)
class UnsentBatch:
    """A committed batch that must be published.

    Args:
        plan: the batch.
        attempt: the attempt that was committed.
        sinks: the sinks that lack it.
        failure: the failure of the last try to publish it; None: no try has failed.
    """

    plan: Plan
    attempt: Attempt
    sinks: tuple[OpenSink[Any], ...]
    failure: Failure | None

    @property
    def seq(self) -> int:
        """The number of the batch."""
        return self.plan.seq

    @property
    def is_refused(self) -> bool:
        """Return whether its last try failed with an error that no retry resolves. An unknown error counts as
        such.

        A sink that has lost its progress, or was replaced, does not refuse the batch.
        """
        if self.failure is None:
            return False
        # The ledger has the error's class name; another version of tidegate may have had other classes.
        error = getattr(errors, self.failure.error, Permanent)
        return issubclass(error, Permanent) and not issubclass(
            error, (LedgerMismatch, ProgressLost, TopicRecreated)
        )

    @property
    def cause(self) -> str:
        """The reason why it is not published, as a sentence."""
        names = ", ".join(sink.name for sink in self.sinks)
        if self.failure is None:
            return f"Batch {self.seq} is decided, and {names} lacks it."
        what = self.failure.what.rstrip(".")
        return f"Batch {self.seq} is decided and cannot be published: {self.failure.error}: {what}."


def first_unsent(app: App, ledger: LedgerReader, stream: Stream) -> UnsentBatch | None:
    """Return the oldest batch of a stream that must be published and is not; None if all are published, or
    withheld.

    Raises Halted or PlanUnreadable if the ledger no longer has its plan.
    """
    for plan in lacking_batches(ledger, stream):
        attempt = ledger.attempt(stream, plan.seq)
        if attempt is None:
            return None
        lacking = unpublished_sinks(ledger, plan)
        sinks = [sink for sink in app.sinks(stream, planned_pipeline(plan)) if sink.name in lacking]
        failure = ledger.failure(stream, plan.seq)
        is_of_publish = failure is not None and failure.step == "publish"
        return UnsentBatch(plan, attempt, tuple(sinks), failure if is_of_publish else None)
    return None


def refusals(
    lease: LeasedLedger, batch: UnsentBatch, named: tuple[str, ...]
) -> Iterator[tuple[OpenSink[Any], TidegateError]]:
    """Publish a batch to each sink that lacks it; yield the sinks that refuse it, with the error.

    Raises an error that a retry can resolve, unless the sink is in `named`.
    """
    for sink in batch.sinks:
        try:
            outbox = sink.outbox(batch.plan, batch.attempt)
            if outbox.emitted:
                sink.publish(lease, outbox, lease.last_published(lease.stream, sink.name))
        # The sink may have the batch after all: giving it up now would be a false record.
        except (LedgerUnavailable, OutcomeUnknown):
            raise
        except TidegateError as error:
            if sink.name not in named and not isinstance(error, Permanent):
                raise
            yield sink, error
        else:
            lease.add_publication(batch.seq, sink.name, outbox.emitted)


def require_sinks(situation: Situation, existing: list[str]) -> None:
    """Check that `--sink` names only sinks that exist. Raises SettingsInvalid."""
    unknown = sorted(set(situation.options.sinks) - set(existing))
    if unknown:
        raise SettingsInvalid(
            f"{situation.stream} has no sink {', '.join(unknown)} that this is about",
            f"It has: {', '.join(existing) or 'none'}.",
        )


def export_records(folder: Path, batch: UnsentBatch, sink: OpenSink[Any]) -> tuple[Path, int]:
    """Write all records that a batch has for a sink, and return the file and how many records are in it.

    The first line says which batch it is, which offsets it has read, and which files could not be read: the
    records of those are not here. Each other line is a record. Raises LakeUnavailable.
    """
    # The name of a sink, such as `table:out/stock`, has characters that a file name cannot have.
    name = f"batch-{batch.seq}-{sink.name}".replace(":", "-").replace("/", "-")
    path = folder / str(batch.plan.stream) / f"{name}.jsonl"
    rows, unreadable = _record_lines(batch, sink)
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


def _record_lines(batch: UnsentBatch, sink: OpenSink[Any]) -> tuple[list[str], list[str]]:
    """Return the lines of the records, and the files that cannot be read."""
    lines: list[str] = []
    unreadable: list[str] = []
    try:
        outbox = sink.outbox(batch.plan, batch.attempt)
    except LakeDamaged as error:
        return lines, [error.what]
    # File by file: one that is damaged must not keep the records of the others from the export.
    for file in outbox.files:
        try:
            rows = read_files(outbox.store, [file])
        except LakeDamaged:
            unreadable.append(file.path)
        else:
            lines += _emissions(rows) if sink.gets_emissions else _quarantined(rows)
    return lines, unreadable


def _emissions(rows: pa.Table) -> Iterator[str]:
    """Yield each emission as a JSON line, with the value as people see it everywhere; null for a deletion."""
    values = json_texts(rows[VALUE].combine_chunks()).to_pylist()
    for row, value in zip(rows.select(_COLUMNS).to_pylist(), values, strict=True):
        # The value is JSON text already: it is inserted as it is, so that no number is written anew.
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
