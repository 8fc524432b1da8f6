"""Records as rows and back. What is stored as JSON has string keys only: partitions become text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
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


def of(table: Table, stream: Stream) -> Any:
    """The condition that a row is the stream's."""
    return and_(table.c.pipeline == stream.pipeline, table.c.generation == stream.generation)


def partitions_in(stored: _Stored) -> dict[tuple[str, int], int]:
    """Topic -> partition -> number, as numbers by (topic, partition)."""
    return {(topic, int(p)): number for topic, parts in stored.items() for p, number in parts.items()}


def partitions_out(numbers: ByPartition) -> dict[str, dict[str, int]]:
    """The same, the other way."""
    stored: dict[str, dict[str, int]] = {}
    for (topic, partition), number in sorted(numbers.items()):
        stored.setdefault(topic, {})[str(partition)] = number
    return stored


def head_in(stream: Stream, row: Row[Any]) -> Head:
    """A head."""
    offsets, epochs, clocks = map(partitions_in, (row.offsets, row.epochs, row.clocks))
    return Head(stream, row.seq, offsets, row.topic_ids, epochs, clocks, row.send_from)


def expired_in(row: Row[Any] | None) -> Expired:
    """Of a head."""
    return Expired(row.expired_seq, row.expired_at) if row is not None and row.expired_seq else Expired()


def plan_in(stream: Stream, row: Row[Any]) -> Plan:
    """A plan, word for word as it was written. Raises Halted when its pipeline is not in the ledger."""
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
        ranges=tuple(OffsetRange(**each) for each in row.ranges),
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
    """A plan's columns, without the stream's. The pipeline is a row of its own: see `spec_out`."""
    elsewhere = ("stream", "spec_text", "spec_compiled")
    row = {name: value for name, value in vars(plan).items() if name not in elsewhere}
    return row | {
        "spec_hash": plan.spec.hash,
        "ranges": [asdict(each) for each in plan.ranges],
        "topic_ids": dict(plan.topic_ids),
        "lookups": dict(plan.lookups),
        "clocks": partitions_out(plan.clocks),
        "timestamps": {topic: list(allowed) for topic, allowed in plan.timestamps.items()},
        "replay": None if plan.replay is None else asdict(plan.replay),
    }


def spec_out(spec: PlannedSpec) -> dict[str, Any]:
    """A planned pipeline's columns, without the stream's."""
    return {"hash": spec.hash, "text": spec.text, "compiled": spec.compiled}


def manifest_in(row: Row[Any], name: str = "name") -> ManifestRef:
    """A manifest, whose name is in the column `name`."""
    columns = (row.manifest_bytes, row.manifest_digest, row.file_rows, row.file_bytes)
    return ManifestRef(row._mapping[name], *columns)


def manifest_out(manifest: ManifestRef, name: str = "name") -> dict[str, Any]:
    """A manifest's columns."""
    return {
        name: manifest.name,
        "manifest_bytes": manifest.bytes,
        "manifest_digest": manifest.digest,
        "file_rows": manifest.file_rows,
        "file_bytes": manifest.file_bytes,
    }


def snapshot_in(stream: Stream, row: Row[Any]) -> Snapshot:
    """A snapshot."""
    return Snapshot(stream, row.seq, manifest_in(row), row.made_at, row.given_up_at)


def recovery_in(stream: Stream, row: Row[Any]) -> Recovery:
    """A use of `tidegate recover`."""
    texts = (row.remedy, row.cause, tuple(row.effects), row.decided_by)
    return Recovery(stream, *texts, row.decided_at, tuple(row.outcome))


def recovery_out(recovery: Recovery) -> dict[str, Any]:
    """A use of `tidegate recover` as columns, without the stream's, the number and the instant."""
    return {
        "remedy": recovery.remedy,
        "cause": storable(recovery.cause),
        "effects": list(map(storable, recovery.effects)),
        "decided_by": storable(recovery.decided_by)[:300],
        "outcome": list(map(storable, recovery.outcome)),
    }


def resolution_in(stream: Stream, row: Row[Any]) -> Resolution:
    """A resolution."""
    batches = row.first_batch, row.last_batch
    decision = row.decided_by, row.reason, row.decided_at
    return Resolution(stream, row.number, row.seq, manifest_in(row), *batches, *decision)


def resolution_out(resolution: Resolution) -> dict[str, Any]:
    """A resolution's columns, without the stream's and the instant."""
    names = ("number", "seq", "first_batch", "last_batch", "decided_by")
    row = {name: getattr(resolution, name) for name in names}
    return row | {"reason": storable(resolution.reason)} | manifest_out(resolution.manifest)


def promotions_of(pipeline: str) -> Select[Any]:
    """The rows that `charge_in` takes."""
    table = schema.promotions
    return select(table).where(table.c.pipeline == pipeline).order_by(table.c.number)


def charge_in(rows: Iterable[Row[Any]]) -> Charge:
    """A pipeline's promotions."""
    return Charge(tuple(Promotion(**row._mapping) for row in rows))


def failure_in(stream: Stream, row: Row[Any]) -> Failure:
    """A failure."""
    return Failure(stream, row.seq, row.step, row.error, row.what, row.fix, row.at_ms)


def storable(text: str) -> str:
    """What a database takes as text: an error may quote a record, and that may hold anything."""
    return text.replace("\0", "").encode(errors="replace").decode()


def attempt_in(stream: Stream, row: Row[Any]) -> Attempt:
    """An attempt."""
    return Attempt(
        stream=stream,
        seq=row.seq,
        manifest=manifest_in(row),
        counts=row.counts,
        validated=row.validated,
        times={stage: partitions_in(each) for stage, each in row.times.items()},
    )


def attempt_out(attempt: Attempt) -> dict[str, Any]:
    """An attempt's columns, without the stream's."""
    return {
        **manifest_out(attempt.manifest),
        "seq": attempt.seq,
        "counts": {stage: dict(counts) for stage, counts in attempt.counts.items()},
        "validated": attempt.validated,
        "times": {stage: partitions_out(each) for stage, each in attempt.times.items()},
    }
