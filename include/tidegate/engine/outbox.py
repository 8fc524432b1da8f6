"""Emissions as the outbox has them: with what each sink sends, and without those that a sink would refuse."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from tidegate.broker.config import MAX_RECORD_BYTES
from tidegate.core.json_columns import json_texts
from tidegate.engine.canonical import KeyTypes
from tidegate.engine.keys import KeyColumns
from tidegate.errors import RecordTooLarge
from tidegate.ledger.records import Plan
from tidegate.spec import KafkaSink, Pipeline, Stage

TOO_LARGE = "too_large"
REFUSED_TIMESTAMP = "refused_timestamp"
COUNTED = {TOO_LARGE: "emitted-too-large", REFUSED_TIMESTAMP: "emitted-refused-timestamp"}
"""The reasons of emissions in quarantine, and what they are counted as."""

_PAYLOAD = {False: "payload", True: "payload_with_key"}


@dataclass(frozen=True)
class Limits:
    """What a stage's Kafka sinks take.

    `too_large`: for each way in which sinks treat a message that is too large (`halt` or `quarantine`), the
    payloads of such sinks (`with_key` or not). `timestamps`: the earliest and the latest (epoch ms) that
    topics take whose sinks have others quarantined; None: any.
    """

    too_large: Mapping[str, frozenset[bool]]
    timestamps: tuple[tuple[int | None, int | None], ...] = ()


@dataclass(frozen=True)
class OutboxFormat:
    """The outbox of one stage. `payloads`: those that sinks send (`with_key` or not)."""

    keys: KeyColumns
    windowed: bool
    payloads: tuple[bool, ...]
    limits: Limits
    seq: int

    def rows(self, emissions: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.StringArray]:
        """The outbox's rows of emissions, and why each cannot go out; null: it can.

        Raises RecordTooLarge where a sink halts for such an emission.
        """
        value = emissions.column("value")
        keys = self.keys.parsed(emissions.column("key"))
        source = hops(emissions)
        columns = {
            **{name: emissions.column(name) for name in ("hash", "key", "ordinal", "reason")},
            "value": value,
            "key_columns": keys,
            **{
                _PAYLOAD[with_key]: json_texts(self._with_key(emissions, keys) if with_key else value)
                for with_key in self.payloads
            },
            **{name: emissions.column(name) for name in ("window_start", "window_end", "timestamp", "at")},
            "source": source,
            "seq": pa.repeat(pa.scalar(self.seq, pa.int64()), emissions.num_rows),
        }
        rows = pa.RecordBatch.from_pydict(columns)
        return rows, self._refused(rows)

    def _with_key(self, emissions: pa.RecordBatch, keys: pa.StructArray) -> pa.StructArray:
        """The value with the key's columns, and the window's, before its own; null for a deletion."""
        value = emissions.column("value")
        columns = _fields(keys) if self.keys.names else {}
        if self.windowed:
            columns |= {name: emissions.column(name) for name in ("window_start", "window_end")}
        own = _fields(value)
        columns = {name: column for name, column in columns.items() if name not in own} | own
        return pa.StructArray.from_arrays(list(columns.values()), list(columns), mask=pc.is_null(value))

    def _refused(self, rows: pa.RecordBatch) -> pa.StringArray:
        reason = pa.nulls(rows.num_rows, pa.string())
        beside = pc.add(pc.binary_length(rows.column("key")), pc.binary_length(rows.column("source")))
        for treatment, payloads in self.limits.too_large.items():
            lengths = [
                pc.fill_null(pc.binary_length(rows.column(_PAYLOAD[each])), 0) for each in sorted(payloads)
            ]
            sizes = pc.add(beside, pc.max_element_wise(*lengths))
            if treatment == "halt":
                _require_small(rows, sizes)
            else:
                reason = pc.if_else(pc.greater(sizes, MAX_RECORD_BYTES), TOO_LARGE, reason)
        outside = self._outside(rows.column("timestamp"))
        return pc.if_else(pc.and_(outside, reason.is_null()), REFUSED_TIMESTAMP, reason)

    def _outside(self, timestamps: pa.Int64Array) -> pa.BooleanArray:
        outside = pa.repeat(False, len(timestamps))
        for earliest, latest in self.limits.timestamps:
            if earliest is not None:
                outside = pc.or_(outside, pc.less(timestamps, earliest))
            if latest is not None:
                outside = pc.or_(outside, pc.greater(timestamps, latest))
        return outside


def outbox_format(pipeline: Pipeline, stage: Stage, keys: KeyTypes, plan: Plan) -> OutboxFormat:
    """How a stage's emissions are written for the sinks that the pipeline declares."""
    sinks = [
        sink for sink in pipeline.sinks if isinstance(sink, KafkaSink) and pipeline.stage_of(sink) == stage
    ]
    too_large: dict[str, frozenset[bool]] = {}
    for sink in sinks:
        too_large[sink.too_large] = too_large.get(sink.too_large, frozenset()) | {sink.with_key}
    topics = sorted({sink.topic for sink in sinks} & plan.timestamps.keys())
    columns = StructType([StructField(name, type_) for name, type_ in keys.items()])
    return OutboxFormat(
        KeyColumns(to_arrow_schema(columns)),
        stage.window is not None,
        tuple(sorted({sink.with_key for sink in sinks})),
        Limits(too_large, tuple(plan.timestamps[topic] for topic in topics)),
        plan.seq,
    )


def refused_input(rows: pa.RecordBatch, reasons: pa.StringArray) -> pa.StructArray:
    """Outbox rows that cannot go out, in the form of unusable input (`frames.INPUT`)."""
    fields = {
        "key": rows.column("key").cast(pa.binary()),
        "value": json_texts(rows.column("value")).cast(pa.binary()),
        "headers": pa.nulls(rows.num_rows, HEADERS),
        "reason": reasons,
    }
    return pa.StructArray.from_arrays(list(fields.values()), list(fields))


HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def hops(emissions: pa.RecordBatch) -> pa.StringArray:
    """The chain of positions that an emission comes from, this hop's included."""
    numbers = [emissions.column(name).cast(pa.string()) for name in ("partition", "offset")]
    here = pc.binary_join_element_wise(emissions.column("topic"), *numbers, "/")
    chain = emissions.column("source")
    return pc.if_else(chain.is_null(), here, pc.binary_join_element_wise(chain, here, ";"))


def _fields(column: pa.StructArray) -> dict[str, pa.Array]:
    return {field.name: pc.struct_field(column, field.name) for field in column.type}


def _require_small(rows: pa.RecordBatch, sizes: pa.Int32Array) -> None:
    largest = pc.max(sizes).as_py()
    if largest is None or largest <= MAX_RECORD_BYTES:
        return
    key = rows.column("key")[pc.index(sizes, largest).as_py()].as_py()
    raise RecordTooLarge(
        f"The emission of key {key[:100]!r} has {largest} bytes; a Kafka sink takes {MAX_RECORD_BYTES}",
        "Select fewer columns in the stage, send to a table sink, or let such emissions be quarantined "
        "(`too_large: quarantine` at the sink); nothing was published.",
    )
