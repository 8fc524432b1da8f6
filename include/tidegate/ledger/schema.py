"""The ledger's tables. The first migration creates them from here.

From the first release on, a change of a table is a migration of its own in `migrations/`.
"""

from __future__ import annotations

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
    UniqueConstraint,
    event,
    insert,
)

metadata = MetaData()

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
    Column("offsets", JSON, nullable=False),
    Column("topic_ids", JSON, nullable=False),
    Column("epochs", JSON, nullable=False),
    Column("clocks", JSON, nullable=False),  # applied to each partition so far
    Column("dropped_at", Float),  # when the generation was dropped; its number is never used again
    Column("origin_generation", Integer),  # the generation whose state it began with, and after which batch
    Column("origin_seq", BigInteger),
    Column("expired_seq", BigInteger),  # quarantine of batches up to this one is not read any more
    Column("expired_at", Float),  # since when
    Column("send_from", BigInteger),  # the first batch that is sent again; null: none but the head is open
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
    Column("ranges", JSON, nullable=False),
    Column("topic_ids", JSON, nullable=False),
    Column("spec_hash", String(64), nullable=False),  # of the row in `pipelines`
    Column("planned_at", Float, nullable=False),
    Column("drain", Boolean, nullable=False),
    Column("lookups", JSON, nullable=False),
    Column("clocks", JSON, nullable=False),  # the head's, when it was planned
    Column("timestamps", JSON, nullable=False),
    Column("replay", JSON(none_as_null=True)),  # the manifest of its input, of a batch that replays
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
    Column("reason", Text, nullable=False),
    Column("decided_at", Float, nullable=False),
)
# Each use of `tidegate recover`. It is kept when the generation is dropped.
recoveries = _table(
    "recoveries",
    [Column("number", Integer, primary_key=True, autoincrement=False)],
    Column("remedy", String(50), nullable=False),
    Column("cause", Text, nullable=False),
    Column("effects", JSON, nullable=False),
    Column("decided_by", String(300), nullable=False),
    Column("decided_at", Float, nullable=False),
    Column("outcome", JSON, nullable=False),  # empty until it is done
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
    Column("counts", JSON, nullable=False),
    Column("validated", Boolean),
    Column("computed_at", Float, nullable=False),
    Column("times", JSON, nullable=False),
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
    Column("what", Text, nullable=False),
    Column("fix", Text, nullable=False),
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
    Column("attempt", String(100), nullable=False),
    Column("suite", String(100), nullable=False),
    Column("suite_digest", String(64), nullable=False),
    Column("target", String(400), nullable=False),
    Column("type", String(200), nullable=False),
    Column("column_names", JSON, nullable=False),
    Column("severity", String(20), nullable=False),
    Column("passed", Boolean, nullable=False),
    Column("observed", Text, nullable=False),
    Column("evaluated_rows", BigInteger),
    Column("unexpected_rows", BigInteger),
    Column("unexpected_share", Float),
    Column("failing", JSON, nullable=False),
    Column("error", Text),
    Column("note", Text, nullable=False),
    Column("page", Text),
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
# Batches that a sink never gets, and the folder to which their records were exported.
given_up = _table(
    "given_up",
    [_seq(), Column("sink", String(300), primary_key=True)],
    Column("sent", BigInteger, nullable=False),  # messages of the batch that the sink has
    Column("records", BigInteger, nullable=False),
    Column("export", Text, nullable=False),
    Column("given_up_at", Float, nullable=False),
)
