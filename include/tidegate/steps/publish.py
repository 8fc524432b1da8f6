"""Step 5, publish: the outbox of a decided batch goes to the sinks, each exactly once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidegate.broker.publisher import KafkaPublisher, Message
from tidegate.errors import TopicRecreated
from tidegate.failpoints import failpoint
from tidegate.lake import attempt_files
from tidegate.lake.reader import lake_errors
from tidegate.lake.table_sink import append_batch
from tidegate.ledger import Attempt, LeasedLedger, Plan, Stream
from tidegate.spec import KafkaSink, Pipeline, TableSink
from tidegate.steps.app import App, planned_pipeline
from tidegate.steps.lease import leased, timed


def publish_batch(app: App, plan: Plan, run_id: str) -> dict[str, int]:
    """Publish a committed batch to the sinks that do not have it yet. Returns sink -> records.

    A batch that every sink has is a verified no-op. Raises ProgressLost, Fenced, OutcomeUnknown, …
    """
    if _has_all(app, plan):
        return app.ledger.publications(plan.stream, plan.seq)
    with leased(app.ledger, plan.stream, run_id) as held:
        with timed(held, plan.seq, "publish"):
            publish_decided(app, held)
        held.release()
    return app.ledger.publications(plan.stream, plan.seq)


def publish_decided(app: App, held: LeasedLedger) -> None:
    """Finish the head's batch. Earlier ones are out: no batch is planned before its predecessor is."""
    head = held.head(held.stream)
    plan = held.plan(held.stream, head.seq) if head.seq else None
    if plan is None or _has_all(app, plan):
        return
    attempt = held.attempt(plan.stream, plan.seq)
    assert attempt is not None, "a committed batch has an attempt"
    pipeline = planned_pipeline(plan)
    done = held.publications(plan.stream, plan.seq)
    for sink in pipeline.sinks:
        if sink.name not in done:
            records = _publish_to(app, held, pipeline, sink, plan, attempt)
            failpoint("publish.before_record")
            held.add_publication(plan.seq, sink.name, records)
            failpoint("publish.after_record")


def _has_all(app: App, plan: Plan) -> bool:
    done = app.ledger.publications(plan.stream, plan.seq)
    return all(sink.name in done for sink in planned_pipeline(plan).sinks)


def _publish_to(
    app: App,
    held: LeasedLedger,
    pipeline: Pipeline,
    sink: KafkaSink | TableSink,
    plan: Plan,
    attempt: Attempt,
) -> int:
    emitted = attempt.counts.get("emitted", 0)
    if emitted:
        outbox = app.lake(plan.stream).outbox(pipeline.stages[-1].name)
        found = attempt_files(outbox, [attempt.name])
        files = found.paths if found else ()
        if isinstance(sink, KafkaSink):
            _to_topic(app, held, sink, plan, files)
        else:
            path = app.lake(plan.stream).table_sink(sink.path)
            append_batch(path, shard_name(plan.stream, sink.name), plan.seq, _table_rows(sink, files))
    return emitted


def _to_topic(app: App, held: LeasedLedger, sink: KafkaSink, plan: Plan, files: Sequence[str]) -> None:
    with app.log() as log:
        identity = log.view(sink.topic).topic_id
        log.ensure_progress_topic()
    known = held.sink_identity(plan.stream, sink.name)
    if known is not None and known != identity:
        raise TopicRecreated(
            f"The output topic {sink.topic} was deleted and created again (id {known} is now {identity})",
            f"Raise `generation` of {plan.stream.pipeline}: it fills the new topic from the start.",
        )
    if known is None:
        held.set_sink_identity(sink.name, identity)
    publisher = KafkaPublisher(app.settings.require_kafka(), shard_name(plan.stream, sink.name), sink.topic)
    column = "payload_with_key" if sink.with_key else "payload"
    last = held.last_published(plan.stream, sink.name)
    publisher.publish(plan.seq, lambda skip: _messages(files, column, skip), last)


def shard_name(stream: Stream, sink: str) -> str:
    """The stable name of who publishes: transactional id, key of the progress record, Delta application."""
    return f"tidegate-{stream.pipeline}-g{stream.generation}-{sink}"


def _messages(files: Sequence[str], column: str, skip: int) -> Iterator[Message]:
    """The outbox from row `skip` on: files in order, rows by key and ordinal, the same at every call."""
    for file in files:
        rows = _sorted_rows(file, ["key", "ordinal", column, "timestamp", "source"])
        if skip >= rows.num_rows:
            skip -= rows.num_rows
            continue
        for batch in rows.slice(skip).to_batches(max_chunksize=10_000):
            yield from map(
                _message, *(batch.column(name).to_pylist() for name in ("key", column, "timestamp", "source"))
            )
        skip = 0


def _message(key: str, payload: str | None, timestamp_ms: int, source: str) -> Message:
    value = None if payload is None else payload.encode()
    return Message(key.encode(), value, timestamp_ms, (("tidegate-source", source.encode()),))


def _sorted_rows(file: str, columns: list[str]) -> pa.Table:
    with lake_errors(file):
        return pq.read_table(file, columns=columns).sort_by([("key", "ascending"), ("ordinal", "ascending")])


def _table_rows(sink: TableSink, files: Sequence[str]) -> pa.Table:
    """What a table sink gets: key, the emitted columns (null for a deletion), timestamp, reason, batch."""
    columns = ["key", "ordinal", "key_columns", "value", "timestamp", "reason", "seq"]
    rows = pa.concat_tables(_sorted_rows(file, columns) for file in files).combine_chunks()
    parts = {"key": rows["key"]}
    if sink.with_key:
        parts |= _fields(rows["key_columns"])
    parts |= _fields(rows["value"])
    return pa.table(parts | {name: rows[name] for name in ("timestamp", "reason", "seq")})


def _fields(column: pa.ChunkedArray) -> dict[str, pa.ChunkedArray]:
    return {field.name: pc.struct_field(column, field.name) for field in column.type}


__all__ = ["publish_batch", "publish_decided", "shard_name"]
