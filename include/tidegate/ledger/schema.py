"""The ledger's tables. The first migration creates them from here.

From the first release on, a change of a table is a migration of its own in `migrations/`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any
from uuid import uuid4

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Connection,
    Float,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
    event,
    insert,
)

from tidegate.ledger.records import ManifestRef, OffsetRange, ReusedBatch

metadata = MetaData()


class _Json(TypeDecorator[Any]):
    """A column whose value has another form in JSON. A value None is SQL's null.

    Args:
        to_json: returns the form in JSON.
        from_json: returns the value.
    """

    impl = JSON
    cache_ok = True

    def __init__(self, to_json: Callable[[Any], Any], from_json: Callable[[Any], Any]) -> None:
        super().__init__(none_as_null=True)
        self.to_json, self.from_json = to_json, from_json

    def process_bind_param(self, value: Any, dialect: Any) -> Any:
        return None if value is None else self.to_json(value)

    def process_result_value(self, value: Any, dialect: Any) -> Any:
        return None if value is None else self.from_json(value)


class _SafeText(TypeDecorator[str]):
    """Text that may quote a record, and a record can contain any bytes. See `_storable`."""

    impl: Any = Text
    cache_ok = True

    def __init__(self, length: int | None = None) -> None:
        super().__init__()
        self.length = length
        self.impl = Text() if length is None else String(length)

    def process_bind_param(self, value: str | None, dialect: Any) -> str | None:
        return None if value is None else _storable(value)


def _storable(text: str) -> str:
    """Return text without the characters that PostgreSQL rejects: NUL and lone surrogates."""
    return text.replace("\0", "").encode(errors="replace").decode()


def _partitions_in(stored: Mapping[str, Mapping[str, int]]) -> dict[tuple[str, int], int]:
    return {(topic, int(p)): number for topic, parts in stored.items() for p, number in parts.items()}


def _partitions_out(numbers: Mapping[tuple[str, int], int]) -> dict[str, dict[str, int]]:
    """Return `{"events": {"0": 7}}` for `{("events", 0): 7}`: JSON has only texts as keys.

    The keys are sorted, so that equal values are stored as equal text.
    """
    stored: dict[str, dict[str, int]] = {}
    for (topic, partition), number in sorted(numbers.items()):
        stored.setdefault(topic, {})[str(partition)] = number
    return stored


def _values(convert: Callable[[Any], Any]) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    return lambda mapping: {name: convert(value) for name, value in mapping.items()}


_MAPPING = _Json(dict, dict)
_COUNTS = _Json(_values(dict), _values(dict))
_PARTITIONS = _Json(_partitions_out, _partitions_in)
_TIMES = _Json(_values(_partitions_out), _values(_partitions_in))
_BOUNDS = _Json(_values(list), _values(tuple))
_RANGES = _Json(
    lambda ranges: [asdict(range_) for range_ in ranges],
    lambda stored: tuple(OffsetRange(**range_) for range_ in stored),
)
_MANIFEST = _Json(asdict, lambda stored: ManifestRef(**stored))
_REUSED = _Json(
    asdict,
    lambda stored: ReusedBatch(stored["generation"], tuple(stored["stages"]), tuple(stored["sinks"])),
)
_NAMES = _Json(list, tuple)
_TEXTS = _Json(lambda texts: [_storable(text) for text in texts], tuple)
_ROWS = _Json(
    lambda rows: [{_storable(name): _storable(text) for name, text in row.items()} for row in rows], tuple
)

_STREAM = (("pipeline", String(200)), ("generation", Integer))


def _table(name: str, key: list[Column[object]], *columns: Column[object]) -> Table:
    stream: list[Column[object]] = [Column(column, type_, primary_key=True) for column, type_ in _STREAM]
    return Table(f"tidegate_{name}", metadata, *stream, *key, *columns)


def _seq() -> Column[object]:
    return Column("seq", BigInteger, primary_key=True, autoincrement=False)


def _sink() -> Column[object]:
    """A sink's name; the longest that the grammar allows is shorter."""
    return Column("sink", String(400), primary_key=True)


def _manifest(name: str, is_key: bool = False) -> list[Column[object]]:
    """Return the columns of a `ManifestRef`; `name` is the column that has the manifest's name."""
    return [
        Column(name, String(100), primary_key=is_key, nullable=False),
        Column("manifest_bytes", BigInteger, nullable=False),
        Column("manifest_digest", String(64), nullable=False),
        Column("file_rows", BigInteger, nullable=False),
        Column("file_bytes", BigInteger, nullable=False),
    ]


# One row, written with the tables and never changed: folders in the lake contain it, so that a process with
# another ledger notices that they are not its own.
identity = Table("tidegate_identity", metadata, Column("ledger", String(36), primary_key=True))


@event.listens_for(identity, "after_create")
def _identify(_: Table, connection: Connection, **_more: Any) -> None:
    connection.execute(insert(identity).values(ledger=str(uuid4())))


# One row per stream: the epoch, which fences older processes, the lease and the head.
heads = _table(
    "heads",
    [],
    Column("epoch", BigInteger, nullable=False),
    Column("holder", String(300)),
    Column("lease_until", Float),  # epoch seconds by the ledger client's clock; only ever delays work
    Column("seq", BigInteger, nullable=False),
    Column("offsets", _PARTITIONS, nullable=False),
    Column("topic_ids", _MAPPING, nullable=False),
    Column("epochs", _PARTITIONS, nullable=False),
    Column("clocks", _PARTITIONS, nullable=False),  # applied to each partition so far
    Column("dropped_at", Float),  # when the generation was dropped; its number is never used again
    Column("origin_generation", Integer),  # the generation whose state it began with, and after which batch
    Column("origin_seq", BigInteger),
    Column("quarantine_expired_seq", BigInteger),  # that of batches up to this one is not read any more
    Column("quarantine_expired_at", Float),  # since when
    Column("outbox_expired_seq", BigInteger),
    Column("outbox_expired_at", Float),
    Column("send_from", BigInteger),  # the first batch that is sent again; null: none but the head is open
    Column("erasure", Integer),  # the erasure that is not finished: no batch is planned before it is
)
# The newest row of a pipeline names the generation in charge. The primary key lets one process add the next
# number, so two promotions at once cannot both succeed.
promotions = Table(
    "tidegate_promotions",
    metadata,
    Column("pipeline", String(200), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("generation", Integer, nullable=False),
    Column("first_seq", BigInteger, nullable=False),
    Column("replaced_seq", BigInteger, nullable=False),
    Column("is_net", Boolean, nullable=False),
    Column("is_rollback", Boolean, nullable=False),
    Column("run_id", String(300), nullable=False),
    Column("decided_at", Float, nullable=False),
    Column("approved_by", String(300)),
    UniqueConstraint("pipeline", "run_id"),  # a run decides once
)
plans = _table(
    "plans",
    [_seq()],
    Column("run_id", String(300), nullable=False),
    Column("clock_ms", BigInteger, nullable=False),
    Column("believed_until_ms", BigInteger, nullable=False),
    Column("ranges", _RANGES, nullable=False),
    Column("topic_ids", _MAPPING, nullable=False),
    Column("spec_hash", String(64), nullable=False),  # of the row in `pipelines`
    Column("planned_at", Float, nullable=False),
    Column("drain", Boolean, nullable=False),
    Column("lookups", _MAPPING, nullable=False),
    Column("clocks", _PARTITIONS, nullable=False),  # the head's, when it was planned
    Column("timestamps", _BOUNDS, nullable=False),
    Column("replay", _MANIFEST),  # the manifest of its input, of a batch that replays
    Column("reused", _REUSED),  # the part of it that another generation has decided
    Column("erasure", Integer),  # the erasure that sends it
)
# Decisions about records in quarantine. A file in the lake lists the records.
resolutions = _table(
    "resolutions",
    [Column("number", Integer, primary_key=True, autoincrement=False)],
    Column("seq", BigInteger),  # the batch that replays them; null: they are discarded
    *_manifest("name"),
    Column("first_batch", BigInteger, nullable=False),
    Column("last_batch", BigInteger, nullable=False),
    Column("decided_by", String(300), nullable=False),
    Column("reason", _SafeText(), nullable=False),
    Column("decided_at", Float, nullable=False),
)
# Each use of `tidegate recover`. It is kept when the generation is dropped.
recoveries = _table(
    "recoveries",
    [Column("number", Integer, primary_key=True, autoincrement=False)],
    Column("remedy", String(50), nullable=False),
    Column("cause", _SafeText(), nullable=False),
    Column("effects", _TEXTS, nullable=False),
    Column("decided_by", _SafeText(300), nullable=False),
    Column("decided_at", Float, nullable=False),
    Column("outcome", _TEXTS, nullable=False),  # empty until it is done
)
# Each use of `tidegate erase`, and its certificate. It is kept when the generation is dropped.
erasures = _table(
    "erasures",
    [Column("number", Integer, primary_key=True, autoincrement=False)],
    Column("seq", BigInteger, nullable=False),  # the batch that erases at the sinks
    Column("salt", String(64), nullable=False),
    Column("keys", _NAMES, nullable=False),  # salted digests of the keys that were named
    Column("entries", _NAMES, nullable=False),  # of the keys of other stages that contain them
    Column("request", _MAPPING),  # the keys themselves, only until the erasure is finished
    Column("decided_by", _SafeText(300), nullable=False),
    Column("decided_at", Float, nullable=False),
    Column("rewritten_at", Float),  # since when the ledger names the rewritten files
    Column("finished_at", Float),
    Column("rows", _MAPPING, nullable=False),  # kind -> rows that were removed
    Column("files", _ROWS, nullable=False),
    Column("batches", _NAMES, nullable=False),  # batches that had rows of the keys
    Column("sinks", _MAPPING, nullable=False),  # sink -> what it was told
    Column("remarks", _TEXTS, nullable=False),  # what may still have the keys
)
# Each version of a pipeline that batches were planned with: the file's text, and its compiled form.
pipelines = _table(
    "pipelines",
    [Column("hash", String(64), primary_key=True)],
    Column("text", Text, nullable=False),
    Column("compiled", Text, nullable=False),
)
runs = _table(
    "runs",
    [Column("run_id", String(300), primary_key=True)],
    Column("seq", BigInteger),
    Column("note", Text, nullable=False),
)
attempts = _table(
    "attempts",
    [_seq()],
    *_manifest("name", is_key=True),
    Column("epoch", BigInteger, nullable=False),
    Column("counts", _COUNTS, nullable=False),
    Column("validated", Boolean),
    Column("computed_at", Float, nullable=False),
    Column("times", _TIMES, nullable=False),
)
commits = _table(
    "commits",
    [_seq()],
    *_manifest("attempt"),
    Column("committed_at", Float, nullable=False),
)
snapshots = _table(
    "snapshots",
    [_seq()],
    *_manifest("name"),
    Column("made_at", Float, nullable=False),
    Column("given_up_at", Float),  # since when nothing before it can be read
)
# The last failure of each batch. It is shown to people; no step depends on it.
failures = _table(
    "failures",
    [_seq()],
    Column("step", String(20), nullable=False),
    Column("error", String(100), nullable=False),
    Column("what", _SafeText(), nullable=False),
    Column("fix", _SafeText(), nullable=False),
    Column("at_ms", BigInteger, nullable=False),
)
publications = _table(
    "publications",
    [_seq(), _sink()],
    Column("records", BigInteger, nullable=False),
    Column("published_at", Float, nullable=False),
)
metrics = _table(
    "metrics",
    [_seq(), Column("stage", String(200), primary_key=True), Column("name", String(200), primary_key=True)],
    Column("value", Float, nullable=False),
)
# Results of quality suites, one row per expectation and try.
quality = _table(
    "quality",
    [
        _seq(),
        Column("try_number", Integer, primary_key=True, autoincrement=False),
        Column("check_number", Integer, primary_key=True, autoincrement=False),
        Column("expectation", Integer, primary_key=True, autoincrement=False),
    ],
    Column("attempt", _SafeText(100), nullable=False),
    Column("suite", _SafeText(100), nullable=False),
    Column("suite_digest", _SafeText(64), nullable=False),
    Column("target", _SafeText(400), nullable=False),
    Column("type", _SafeText(200), nullable=False),
    Column("column_names", _NAMES, nullable=False),
    Column("severity", _SafeText(20), nullable=False),
    Column("passed", Boolean, nullable=False),
    Column("observed", _SafeText(), nullable=False),
    Column("evaluated_rows", BigInteger),
    Column("unexpected_rows", BigInteger),
    Column("unexpected_share", Float),
    Column("failing", _ROWS, nullable=False),
    Column("error", _SafeText()),
    Column("note", _SafeText(), nullable=False),
    Column("page", _SafeText()),
    Column("checked_at", Float, nullable=False),
)
sinks = _table(
    "sinks",
    [_sink()],
    Column("identity", String(300), nullable=False),  # of the topic that was first published to
)
# The newest batch of which a sink, or a part of one, got something. Each batch reads it, so it is stored
# instead of searched in `publications`.
sink_heads = _table(
    "sink_heads",
    [_sink()],
    Column("seq", BigInteger, nullable=False),
)
# What sinks without transactions of their own have acknowledged: only this process can store it.
sink_progress = _table(
    "sink_progress",
    [_sink()],
    Column("seq", BigInteger, nullable=False),
    Column("attempt", String(100), nullable=False),
    Column("requests", BigInteger, nullable=False),
    Column("records", BigInteger, nullable=False),
    Column("done", Boolean, nullable=False),
)
# Batches that a sink never gets, and the folder to which their records were exported.
given_up = _table(
    "given_up",
    [_seq(), Column("sink", String(300), primary_key=True)],
    Column("sent", BigInteger, nullable=False),  # messages of the batch that the sink has
    Column("records", BigInteger, nullable=False),
    Column("export", Text, nullable=False),
    Column("given_up_at", Float, nullable=False),
)
