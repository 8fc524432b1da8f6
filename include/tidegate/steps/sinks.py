"""The kinds of sinks: how each takes an outbox, exactly once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from tidegate import sql
from tidegate.broker.publisher import KafkaPublisher
from tidegate.errors import Halted, ProgressLost, TopicRecreated
from tidegate.lake.table_sink import append_batch
from tidegate.ledger import LeasedLedger, LedgerReader, Stream
from tidegate.settings import sql_variable
from tidegate.spec import KafkaSink, Pipeline, SqlSink, Stage, TableSink
from tidegate.steps.app import App, planned_pipeline
from tidegate.steps.messages import topic_messages
from tidegate.steps.outbox import Outbox

AnySink: TypeAlias = KafkaSink | TableSink | SqlSink


def send(app: App, held: LeasedLedger, sink: AnySink, outbox: Outbox, last_published: int) -> None:
    """Send a batch's emissions, or what is left of them. `last_published` as the ledger knows it.

    Raises ProgressLost, Fenced, OutcomeUnknown, TopicRecreated, SinkRefused, …Unavailable.
    """
    if isinstance(sink, KafkaSink):
        _to_topic(app, held, sink, outbox, last_published)
    elif isinstance(sink, SqlSink):
        with sql_database(app, sink) as database:
            publisher = sql_publisher(database, sink, outbox)
            emissions = outbox.batches(sql.OUTBOX)
            publisher.publish(outbox.plan.seq, outbox.attempt, emissions, last_published)
    else:
        _to_table(app, sink, outbox, last_published)


def shard_name(stream: Stream, sink: str) -> str:
    """The stable name of who publishes: transactional id, key of the progress record, Delta application."""
    return f"tidegate-{stream.pipeline}-g{stream.generation}-{sink}"


def check_sql_sinks(app: App, pipeline: Pipeline) -> None:
    """Find what would keep a SQL sink from being published to, before anything is planned for it.

    Raises SettingsInvalid when its database is not set, SinkRefused when a name has two meanings.
    """
    for sink in pipeline.sinks:
        if isinstance(sink, SqlSink):
            app.settings.sql_url(sink.connection)
            stage = pipeline.stage_of(sink)
            keys = pipeline.key_of(stage) if sink.with_key else ()
            sql.check_names(_target(sink, stage), list(dict.fromkeys((*keys, *stage.emitted))))


def sql_connections(app: App, stream: Stream, *more: Pipeline) -> set[str | None]:
    """The connections of the SQL sinks that a stream's last and planned batches, and `more`, go to."""
    head = app.ledger.head(stream).seq
    plans = [app.ledger.plan(stream, seq) for seq in (head, head + 1)]
    pipelines = [*more, *(planned_pipeline(plan) for plan in plans if plan is not None)]
    sinks = [sink for pipeline in pipelines for sink in pipeline.sinks]
    return {sink.connection for sink in sinks if isinstance(sink, SqlSink)}


def check_sql_outbox(app: App, sink: SqlSink, outbox: Outbox) -> None:
    """Find what the database will not take while nothing is decided yet, without asking it.

    Raises SinkRefused, SettingsInvalid.
    """
    dialect = sql.dialect_of(app.settings.sql_url(sink.connection), sql_variable(sink.connection))
    sql.check_emissions(dialect, _layout(sink, outbox), outbox.batches(sql.OUTBOX))


def sent_to(
    app: App, ledger: LedgerReader, stream: Stream, sink: str, seq: int
) -> tuple[AnySink, Outbox] | None:
    """What a committed batch had for a sink, and the sink as it was then; None if that was nothing.

    Raises Halted for a batch that may have had something for it, and of which the ledger keeps no more than
    its commit.
    """
    plan, attempt = ledger.plan(stream, seq), ledger.attempt(stream, seq)
    if plan is None or attempt is None:
        _require_nothing_sent(ledger, stream, sink, seq)
        return None
    pipeline = planned_pipeline(plan)
    for each in pipeline.sinks:
        if each.name == sink:
            outbox = app.outbox(plan, pipeline.stage_of(each), attempt)
            return (each, outbox) if outbox.emitted else None
    return None


def _require_nothing_sent(ledger: LedgerReader, stream: Stream, sink: str, seq: int) -> None:
    """Batches after the last that the sink got something of had nothing for it."""
    if 0 < seq <= ledger.last_published(stream, sink):
        raise Halted(
            f"Batch {seq} of {stream} would have to be compared with what {sink} has, or sent again; it is "
            "older than TIDEGATE_TIME_TRAVEL, and the ledger no longer has its plan",
            f"Restore the sink from a newer backup; or raise `generation` of {stream.pipeline}.",
        )


def sql_database(app: App, sink: SqlSink) -> sql.Database:
    """The sink's database. Use it as a context manager. Raises SettingsInvalid."""
    return sql.Database(app.settings.sql_url(sink.connection), sql_variable(sink.connection))


def sql_publisher(database: sql.Database, sink: SqlSink, outbox: Outbox) -> sql.SqlPublisher:
    """What puts the outbox's emissions into the sink's table."""
    stream = outbox.plan.stream
    shard = sql.Shard(shard_name(stream, sink.name), str(stream))
    return sql.SqlPublisher(database, shard, _layout(sink, outbox))


def _layout(sink: SqlSink, outbox: Outbox) -> sql.Layout:
    return sql.Layout(_target(sink, outbox.stage), outbox.schema(sql.OUTBOX))


def _target(sink: SqlSink, stage: Stage) -> sql.Target:
    return sql.Target(sink.table, sink.mode, sink.with_key, stage.window is not None)


def check_topic(app: App, ledger: LedgerReader, stream: Stream, sink: KafkaSink) -> str:
    """The id of the output topic, if it is the one that was first published to.

    Raises TopicMissing, TopicRecreated, BrokerUnavailable.
    """
    with app.log() as log:
        identity = log.topic_id(sink.topic)
    known = ledger.sink_identity(stream, sink.name)
    if known is not None and known != identity:
        raise TopicRecreated(
            f"The output topic {sink.topic} was deleted and created again (id {known} is now {identity})",
            f"Raise `generation` of {stream.pipeline}: it fills the new topic from the start.",
        )
    return identity


def topic_publisher(app: App, stream: Stream, sink: KafkaSink) -> KafkaPublisher:
    """What sends to the topic. Makes the topic of progress records if there is none."""
    with app.log() as log:
        log.ensure_progress_topic()
    return app.publisher(shard_name(stream, sink.name), sink.topic)


@contextmanager
def reconcilable(stream: Stream) -> Iterator[None]:
    """Name the command that resolves a lost progress record."""
    try:
        yield
    except ProgressLost as error:
        raise ProgressLost(
            error.what,
            "Let tidegate find out from the output topic what was sent, and send the rest: "
            f"tidegate doctor {stream.pipeline} --reconcile",
        ) from error


def _to_topic(app: App, held: LeasedLedger, sink: KafkaSink, outbox: Outbox, last_published: int) -> None:
    plan = outbox.plan
    identity = check_topic(app, held, plan.stream, sink)
    publisher = topic_publisher(app, plan.stream, sink)
    _begin(held, publisher, sink.name, plan.seq, identity)
    messages = partial(topic_messages, sink, outbox)
    with reconcilable(plan.stream):
        publisher.publish(plan.seq, outbox.attempt, messages, last_published)


def _begin(held: LeasedLedger, publisher: KafkaPublisher, name: str, seq: int, identity: str) -> None:
    """At the first use of a sink: the progress record first, then the ledger's note, and only then something
    to publish. So where the ledger has the note, a missing record is a lost one.
    """
    if held.sink_identity(held.stream, name) is None:
        publisher.begin(seq)
        held.set_sink_identity(name, identity)


def _to_table(app: App, sink: TableSink, outbox: Outbox, last_published: int) -> None:
    plan = outbox.plan
    path = app.lake(plan.stream).table_sink(sink.path)
    rows = _table_rows(sink, outbox)
    append_batch(path, shard_name(plan.stream, sink.name), plan.seq, rows, last_published)


def _table_rows(sink: TableSink, outbox: Outbox) -> pa.RecordBatchReader:
    """What a table sink gets: key, window if there is one, the emitted columns (null for a deletion),
    timestamp, reason, batch.
    """
    windows = ("window_start", "window_end") if outbox.stage.window is not None else ()
    columns = ["key", *windows, "key_columns", "value", "timestamp", "reason", "seq"]

    def as_rows(emissions: pa.RecordBatch) -> pa.RecordBatch:
        parts = {name: emissions.column(name) for name in ("key", *windows)}
        if sink.with_key:
            parts |= _fields(emissions.column("key_columns"))
        parts |= _fields(emissions.column("value"))
        parts |= {name: emissions.column(name) for name in ("timestamp", "reason", "seq")}
        return pa.RecordBatch.from_pydict(parts)

    none = pa.RecordBatch.from_pylist([], outbox.schema(columns))
    return pa.RecordBatchReader.from_batches(as_rows(none).schema, map(as_rows, outbox.batches(columns)))


def _fields(column: pa.StructArray) -> dict[str, pa.Array]:
    return {field.name: pc.struct_field(column, field.name) for field in column.type}
