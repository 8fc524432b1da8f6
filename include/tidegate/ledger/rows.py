"""Conversion of the ledger's values to rows and back.

JSON columns have text as keys, so (topic, partition) is stored as topic -> partition -> number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from functools import lru_cache
from typing import Any

from sqlalchemy import Row, Select, Table, and_, select

from tidegate.errors import Halted
from tidegate.ledger import schema
from tidegate.ledger.promotions import Charge, Promotion
from tidegate.ledger.records import (
    Attempt,
    Expired,
    Failure,
    Head,
    ManifestRef,
    OffsetRange,
    Plan,
    PlannedSpec,
    Recovery,
    Resolution,
    Snapshot,
    Stream,
)

ByPartition = Mapping[tuple[str, int], int]
_Stored = Mapping[str, Mapping[str, int]]


# SQLAlchemy's conditions are immutable, and to build one takes longer than many of the queries that have it.
@lru_cache(maxsize=1024)
def in_stream(table: Table, stream: Stream) -> Any:
    """Return the SQL condition that a row belongs to the stream."""
    return and_(table.c.pipeline == stream.pipeline, table.c.generation == stream.generation)


def partitions_in(stored: _Stored) -> dict[tuple[str, int], int]:
    """Return numbers by (topic, partition), from the stored form.

    Example: `{"events": {"0": 7}}` becomes `{("events", 0): 7}`.
    """
    return {(topic, int(p)): number for topic, parts in stored.items() for p, number in parts.items()}


def partitions_out(numbers: ByPartition) -> dict[str, dict[str, int]]:
    """Return the stored form of numbers by (topic, partition): the inverse of `partitions_in`.

    Example: `{("events", 0): 7}` becomes `{"events": {"0": 7}}`. The keys are sorted, so that equal values
    are stored as equal text.
    """
    stored: dict[str, dict[str, int]] = {}
    for (topic, partition), number in sorted(numbers.items()):
        stored.setdefault(topic, {})[str(partition)] = number
    return stored


def head_in(stream: Stream, row: Row[Any]) -> Head:
    """Return the head that a row of `heads` stores."""
    offsets, epochs, clocks = map(partitions_in, (row.offsets, row.epochs, row.clocks))
    return Head(stream, row.seq, offsets, row.topic_ids, epochs, clocks, row.send_from)


def expired_in(row: Row[Any] | None) -> Expired:
    """Return the limit of the quarantine that a row of `heads` stores."""
    return Expired(row.expired_seq, row.expired_at) if row is not None and row.expired_seq else Expired()


def plan_in(stream: Stream, row: Row[Any]) -> Plan:
    """Return the plan exactly as it was written.

    Raises Halted if the ledger lacks the pipeline that the batch was planned with: a plan is never completed
    from the current pipeline file.
    """
    if row.spec_text is None or row.spec_compiled is None:
        raise Halted(
            f"The ledger does not have the pipeline that batch {row.seq} of {stream} was planned with",
            "Restore the table tidegate_pipelines from a backup of the ledger.",
        )
    return Plan(
        stream=stream,
        seq=row.seq,
        run_id=row.run_id,
        clock_ms=row.clock_ms,
        believed_until_ms=row.believed_until_ms,
        ranges=tuple(OffsetRange(**range_) for range_ in row.ranges),
        topic_ids=row.topic_ids,
        spec_text=row.spec_text,
        spec_compiled=row.spec_compiled,
        drain=row.drain,
        lookups=row.lookups,
        clocks=partitions_in(row.clocks),
        timestamps={topic: (earliest, latest) for topic, (earliest, latest) in row.timestamps.items()},
        replay=None if row.replay is None else ManifestRef(**row.replay),
    )


def plan_out(plan: Plan) -> dict[str, Any]:
    """Return a plan's columns, without those of the stream.

    The pipeline is a row of its own (see `spec_out`): most plans of a stream have the same one.
    """
    elsewhere = ("stream", "spec_text", "spec_compiled")
    row = {name: value for name, value in vars(plan).items() if name not in elsewhere}
    return row | {
        "spec_hash": plan.spec.hash,
        "ranges": [asdict(range_) for range_ in plan.ranges],
        "topic_ids": dict(plan.topic_ids),
        "lookups": dict(plan.lookups),
        "clocks": partitions_out(plan.clocks),
        "timestamps": {topic: list(allowed) for topic, allowed in plan.timestamps.items()},
        "replay": None if plan.replay is None else asdict(plan.replay),
    }


def spec_out(spec: PlannedSpec) -> dict[str, Any]:
    """Return a planned pipeline's columns, without those of the stream."""
    return {"hash": spec.hash, "text": spec.text, "compiled": spec.compiled}


def manifest_in(row: Row[Any], name: str = "name") -> ManifestRef:
    """Return the manifest of a row; `name` is the column that has the manifest's name."""
    columns = (row.manifest_bytes, row.manifest_digest, row.file_rows, row.file_bytes)
    return ManifestRef(row._mapping[name], *columns)


def manifest_out(manifest: ManifestRef, name: str = "name") -> dict[str, Any]:
    """Return a manifest's columns; its name goes into the column `name`."""
    return {
        name: manifest.name,
        "manifest_bytes": manifest.bytes,
        "manifest_digest": manifest.digest,
        "file_rows": manifest.file_rows,
        "file_bytes": manifest.file_bytes,
    }


def snapshot_in(stream: Stream, row: Row[Any]) -> Snapshot:
    """Return the snapshot that a row stores."""
    return Snapshot(stream, row.seq, manifest_in(row), row.made_at, row.given_up_at)


def recovery_in(stream: Stream, row: Row[Any]) -> Recovery:
    """Return the use of `tidegate recover` that a row stores."""
    texts = (row.remedy, row.cause, tuple(row.effects), row.decided_by)
    return Recovery(stream, *texts, row.decided_at, tuple(row.outcome))


def recovery_out(recovery: Recovery) -> dict[str, Any]:
    """Return the columns of a use of `tidegate recover`, without the stream's, the number and the time."""
    return {
        "remedy": recovery.remedy,
        "cause": storable(recovery.cause),
        "effects": list(map(storable, recovery.effects)),
        # PostgreSQL refuses a text that is longer than its column.
        "decided_by": storable(recovery.decided_by)[:300],
        "outcome": list(map(storable, recovery.outcome)),
    }


def resolution_in(stream: Stream, row: Row[Any]) -> Resolution:
    """Return the resolution that a row stores."""
    batches = row.first_batch, row.last_batch
    decision = row.decided_by, row.reason, row.decided_at
    return Resolution(stream, row.number, row.seq, manifest_in(row), *batches, *decision)


def resolution_out(resolution: Resolution) -> dict[str, Any]:
    """A resolution's columns, without the stream's and the instant."""
    names = ("number", "seq", "first_batch", "last_batch", "decided_by")
    row = {name: getattr(resolution, name) for name in names}
    return row | {"reason": storable(resolution.reason)} | manifest_out(resolution.manifest)


def promotions_of(pipeline: str) -> Select[Any]:
    """Return the query for the promotions of a pipeline, oldest first: the rows that `charge_in` takes."""
    table = schema.promotions
    return select(table).where(table.c.pipeline == pipeline).order_by(table.c.number)


def charge_in(rows: Iterable[Row[Any]]) -> Charge:
    """Return which generations are and were in charge, from the rows of `promotions_of`."""
    return Charge(tuple(Promotion(**row._mapping) for row in rows))


def failure_in(stream: Stream, row: Row[Any]) -> Failure:
    """Return the failure that a row stores."""
    return Failure(stream, row.seq, row.step, row.error, row.what, row.fix, row.at_ms)


def storable(text: str) -> str:
    """Return text without the characters that PostgreSQL rejects: NUL and lone surrogates.

    An error can quote a record, and a record can contain any bytes.

    Example: a text `a`, NUL, `b` becomes `ab`; a lone surrogate becomes `?`.
    """
    return text.replace("\0", "").encode(errors="replace").decode()


def attempt_in(stream: Stream, row: Row[Any]) -> Attempt:
    """Return the attempt that a row stores."""
    return Attempt(
        stream=stream,
        seq=row.seq,
        manifest=manifest_in(row),
        counts=row.counts,
        validated=row.validated,
        times={stage: partitions_in(partitions) for stage, partitions in row.times.items()},
    )


def attempt_out(attempt: Attempt) -> dict[str, Any]:
    """Return an attempt's columns, without those of the stream."""
    return {
        **manifest_out(attempt.manifest),
        "seq": attempt.seq,
        "counts": {stage: dict(counts) for stage, counts in attempt.counts.items()},
        "validated": attempt.validated,
        "times": {stage: partitions_out(partitions) for stage, partitions in attempt.times.items()},
    }
