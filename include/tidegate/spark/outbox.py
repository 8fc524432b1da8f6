"""The outbox's form of emissions: with the messages of each sink, which only send them, and without those
that a sink would refuse.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from tidegate.errors import RecordTooLarge, SchemaRefused
from tidegate.formats import JsonDecoder
from tidegate.formats.binary import Write, joined
from tidegate.formats.debezium import SOURCE_TEXTS, envelope_texts, enveloped
from tidegate.formats.decoded import Reason
from tidegate.formats.metadata import header_contents
from tidegate.formats.registry import formats
from tidegate.formats.schemas import Payload, SinkSchema, Unwritable
from tidegate.kafka.config import MAX_RECORD_BYTES
from tidegate.kernel.json_text import json_texts
from tidegate.kernel.keys import real_keys
from tidegate.kernel.ordering import starts
from tidegate.kernel.rows import RECORDED, mask
from tidegate.storage.schema import (
    KEY,
    KEY_COLUMNS,
    REASON,
    SEQ,
    SOURCE,
    TIMESTAMP,
    VALUE,
    emission_columns,
    outbox_schema,
    parts_of,
    window_columns,
)

if TYPE_CHECKING:
    from tidegate.ledger.records import Plan
    from tidegate.model.pipeline import Pipeline
    from tidegate.model.stage import Stage
    from tidegate.spark.steps import KeyTypes

COUNTED = {
    str(Reason.TOO_LARGE): "emitted-too-large",
    str(Reason.REFUSED_TIMESTAMP): "emitted-refused-timestamp",
}
"""Reason of an emission in quarantine -> the metric that counts it."""


@dataclass(frozen=True)
class KeyColumns:
    """The columns of a key, in order, with Arrow's types; empty: the key is the record's own text.

    Args:
        may_lack_keys: whether some texts stand for no key, see `kernel.keys`.
    """

    schema: pa.Schema
    may_lack_keys: bool = False

    @property
    def names(self) -> list[str]:
        """The columns' names."""
        return list(self.schema.names)

    @property
    def type(self) -> pa.StructType:
        """The type of `parsed`."""
        return pa.struct(list(self.schema) if self.names else [pa.field("key", pa.string())])

    def parsed(self, keys: pa.StringArray) -> pa.StructArray:
        """Return the columns of canonical keys: one column is the key's text, several are a JSON object.

        Example: for columns `id` and `region`, `{"id":7,"region":"eu"}` gives the struct with 7 and "eu".
        """
        missing = None
        if self.may_lack_keys:
            keys = real_keys(keys)
            missing = keys.is_null()
        if not self.names:
            return pa.StructArray.from_arrays([keys], ["key"], mask=missing)
        if len(self.names) == 1:
            field = self.schema.field(0)
            column = _from_text(keys, field.type)
            return pa.StructArray.from_arrays([column], fields=[field], mask=missing)
        # The emissions of a key come together: where they are many, as under `update`, each text is decoded
        # once. A missing key equals no other one.
        first = pc.fill_null(starts(keys), True)
        if 2 * first.true_count > len(keys):
            return self._decoded(keys)
        return self._decoded(keys.filter(first)).take(pa.array(np.cumsum(mask(first)) - 1))

    def _decoded(self, keys: pa.StringArray) -> pa.StructArray:
        return self._decoder.decode(keys.cast(pa.binary()).to_pylist()).columns

    @cached_property
    def _decoder(self) -> JsonDecoder:
        return JsonDecoder(self.schema)


def key_columns_of(keys: pa.StringArray, type_: pa.StructType) -> pa.StructArray:
    """Return the columns of canonical keys that an outbox has, by its type; null if the keys have other
    columns.
    """
    try:
        return KeyColumns(pa.schema(list(type_))).parsed(keys).cast(type_)
    except pa.ArrowException:
        return pa.nulls(len(keys), type_)


def _from_text(keys: pa.StringArray, type_: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(type_) and type_.tz is not None:
        return pc.assume_timezone(keys.cast(pa.timestamp("us")), "UTC")
    return keys.cast(type_)


@dataclass(frozen=True)
class MessageValues:
    """The values of one sink's messages, or their keys.

    Args:
        payload: the form that the sink wants.
        keys: the columns of the stage's key.
        windowed: whether the stage has windows.
        stream: with `stage` and `seq` the origin of the emissions, for envelopes.
        columns: the columns of the sink's schema; None: the messages have none.
    """

    payload: Payload
    keys: KeyColumns
    windowed: bool
    stream: str
    stage: str
    seq: int
    columns: pa.Schema | None = None

    @property
    def type(self) -> pa.DataType:
        """The type of the outbox's column for them."""
        return formats()[self.payload.format].written if self.columns is None else pa.binary()

    def encoded(self, emissions: pa.RecordBatch, keys: pa.StructArray, chains: pa.StringArray) -> pa.Array:
        """Return the values; null for a deletion, unless they are envelopes.

        Raises SchemaRefused if a value has no form in the format.

        Args:
            emissions: emissions of the stage.
            keys: the columns of the emissions' keys.
            chains: the positions that they come from.
        """
        if self.payload.is_key:
            return self._written(keys)
        value = self._whole(emissions, emissions.column(VALUE), keys)
        if not self.payload.enveloped:
            return self._written(value)
        before = self._whole(emissions, emissions.column("emitted"), keys)
        parts = (before, value, self._source(emissions, chains), emissions.column("at"))
        return envelope_texts(*parts) if self.columns is None else self._by_schema(enveloped(*parts))

    def _whole(
        self, emissions: pa.RecordBatch, value: pa.StructArray, keys: pa.StructArray
    ) -> pa.StructArray:
        """Return the value, with the columns of key and window before its own if the sink wants them; null
        for null.
        """
        if not self.payload.with_key:
            return value
        columns = parts_of(keys) if self.keys.names else {}
        columns |= {name: emissions.column(name) for name in window_columns(self.windowed)}
        # A selected column hides a column of the key or the window with its name.
        own = parts_of(value)
        columns = {name: column for name, column in columns.items() if name not in own} | own
        return pa.StructArray.from_arrays(list(columns.values()), list(columns), mask=pc.is_null(value))

    def _source(self, emissions: pa.RecordBatch, chains: pa.StringArray) -> dict[str, pa.Array]:
        number = emissions.num_rows
        fixed = zip(SOURCE_TEXTS, ("tidegate", self.stream, self.stage), strict=True)
        return {
            **{name: pa.repeat(text, number) for name, text in fixed},
            "batch": pa.repeat(pa.scalar(self.seq, pa.int64()), number),
            "reason": emissions.column(REASON),
            "position": chains,
            "ts_ms": emissions.column(TIMESTAMP),
            **{name: emissions.column(name) for name in window_columns(self.windowed)},
        }

    def _written(self, values: pa.StructArray) -> pa.Array:
        if self.columns is not None:
            return self._by_schema(values)
        write = formats()[self.payload.format].write
        return json_texts(values) if write is None else write(values)

    def _by_schema(self, values: pa.StructArray) -> pa.BinaryArray:
        schema = self.payload.schema
        assert schema is not None, "a plan fixes it"
        assert self.columns is not None, "they are its columns"
        try:
            prefix, write = _writer(self.payload.format, schema, self.columns)
            return joined(prefix, write(values.cast(pa.struct(list(self.columns)))), b"")
        except (Unwritable, pa.ArrowException) as error:
            raise SchemaRefused(
                f"An emission of the stage {self.stage} cannot be written as {self.payload.format}: {error}",
                "Select the column with a type that fits; nothing was published.",
            ) from None


@lru_cache(maxsize=32)
def _writer(format_: str, schema: SinkSchema, columns: pa.Schema) -> tuple[bytes, Write]:
    """Return the prefix of each value, and the function that writes the rest."""
    messages = formats()[format_].messages
    assert messages is not None, "only formats with a schema are written by one"
    return messages.writer(schema, columns)


@dataclass(frozen=True)
class Limits:
    """The limits of those of a stage's sinks that send messages.

    Args:
        too_large: treatment of a message that is too large (`halt` or `quarantine`) -> the columns of such
            sinks' payloads.
        timestamps: of topics whose sinks quarantine other timestamps, the column that they send, and the
            earliest and the latest (epoch ms) that they accept; None: any.
        headers: name and column of each header that a sink takes from a column.
    """

    too_large: Mapping[str, frozenset[str]]
    timestamps: tuple[tuple[str, int | None, int | None], ...] = ()
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class OutboxFormat:
    """The outbox of one stage.

    Args:
        keys: the columns of its key.
        payloads: the messages of its sinks, in the order of their columns.
        limits: what its sinks refuse.
        seq: the batch.
    """

    keys: KeyColumns
    payloads: tuple[MessageValues, ...]
    limits: Limits
    seq: int

    def rows(self, emissions: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.StringArray]:
        """Return the outbox's rows of emissions, and why each cannot be sent; null: it can.

        Raises RecordTooLarge if a sink halts for such an emission, SchemaRefused.
        """
        value = emissions.column(VALUE)
        keys = self.keys.parsed(emissions.column(KEY))
        chains = hops(emissions)
        computed = {
            KEY_COLUMNS: keys,
            **{values.payload.column: values.encoded(emissions, keys, chains) for values in self.payloads},
            SOURCE: chains,
            SEQ: pa.repeat(pa.scalar(self.seq, pa.int64()), emissions.num_rows),
        }
        types = {values.payload.column: values.type for values in self.payloads}
        schema = outbox_schema(value.type, keys.type, types, RECORDED in emissions.schema.names)
        columns = [computed[name] if name in computed else emissions.column(name) for name in schema.names]
        rows = pa.RecordBatch.from_arrays(columns, schema=schema)
        return rows, self._refused(rows)

    def _refused(self, rows: pa.RecordBatch) -> pa.StringArray:
        reason = pa.nulls(rows.num_rows, pa.string())
        # Each message also has the key, and the source chain in a header.
        overhead = pc.add(pc.binary_length(rows.column(KEY)), pc.binary_length(rows.column(SOURCE)))
        for sizes in self._header_sizes(rows):
            overhead = pc.add(overhead, sizes)
        for treatment, payloads in self.limits.too_large.items():
            lengths = [
                pc.fill_null(pc.binary_length(rows.column(payload)), 0) for payload in sorted(payloads)
            ]
            sizes = pc.add(overhead, pc.max_element_wise(*lengths))
            if treatment == "halt":
                _require_small(rows, sizes)
            else:
                reason = pc.if_else(pc.greater(sizes, MAX_RECORD_BYTES), str(Reason.TOO_LARGE), reason)
        outside = self._outside(rows)
        # An emission has one reason in quarantine, and its metric counts it once: size goes first.
        return pc.if_else(pc.and_(outside, reason.is_null()), str(Reason.REFUSED_TIMESTAMP), reason)

    def _header_sizes(self, rows: pa.RecordBatch) -> Iterator[pa.Int32Array]:
        """Yield the bytes of the headers that have columns, of all sinks."""
        if self.limits.headers:
            columns = emission_columns(rows)
            for name, column in self.limits.headers:
                contents = header_contents(columns[column])
                yield pc.fill_null(pc.add(pc.binary_length(contents), len(name.encode())), 0)

    def _outside(self, rows: pa.RecordBatch) -> pa.BooleanArray:
        outside = pa.repeat(False, rows.num_rows)
        for column, earliest, latest in self.limits.timestamps:
            timestamps = rows.column(column)
            if earliest is not None:
                outside = pc.or_(outside, pc.less(timestamps, earliest))
            if latest is not None:
                outside = pc.or_(outside, pc.greater(timestamps, latest))
        return outside


def outbox_format(pipeline: Pipeline, stage: Stage, keys: KeyTypes, plan: Plan) -> OutboxFormat:
    """Return how a stage's emissions are written for the sinks that the pipeline declares."""
    # imported late: workers import this module, and do not need the grammar
    from tidegate.model.kernel_stages import message_columns

    columns = KeyColumns(
        to_arrow_schema(StructType([StructField(name, type_) for name, type_ in keys.items()])),
        pipeline.may_lack_keys(stage),
    )
    windowed, stream = stage.window is not None, str(plan.stream)
    too_large: dict[str, frozenset[str]] = {}
    targets: dict[str, str] = {}
    headers: set[tuple[str, str]] = set()
    payloads: dict[str, MessageValues] = {}
    for sink in pipeline.sinks_of(stage):
        rule = sink.messages
        if rule is not None:
            for payload in filter(None, (rule.payload, rule.key)):
                schema = message_columns(pipeline, sink, payload) if payload.schema is not None else None
                payloads[payload.column] = MessageValues(
                    payload, columns, windowed, stream, stage.name, plan.seq, schema
                )
            too_large[rule.too_large] = too_large.get(rule.too_large, frozenset()) | {rule.payload.column}
            headers |= set(rule.headers.items())
            targets[rule.target] = rule.timestamp or TIMESTAMP
    topics = sorted(targets.keys() & plan.timestamps.keys())
    timestamps = tuple((targets[topic], *plan.timestamps[topic]) for topic in topics)
    limits = Limits(too_large, timestamps, tuple(sorted(headers)))
    return OutboxFormat(columns, tuple(payloads[name] for name in sorted(payloads)), limits, plan.seq)


def hops(emissions: pa.RecordBatch) -> pa.StringArray:
    """Return the chain of positions that an emission comes from, including this hop.

    Example: source `orders/0/7`, topic `totals`, partition 1 and offset 3 give `orders/0/7;totals/1/3`.
    """
    numbers = [emissions.column(name).cast(pa.string()) for name in ("partition", "offset")]
    hop = pc.binary_join_element_wise(emissions.column("topic"), *numbers, "/")
    chain = emissions.column("source")
    return pc.if_else(chain.is_null(), hop, pc.binary_join_element_wise(chain, hop, ";"))


def _require_small(rows: pa.RecordBatch, sizes: pa.Int32Array) -> None:
    largest = pc.max(sizes).as_py()
    if largest is None or largest <= MAX_RECORD_BYTES:
        return
    key = rows.column(KEY)[pc.index(sizes, largest).as_py()].as_py()
    raise RecordTooLarge(
        f"The emission of key {key[:100]!r} has {largest} bytes; a Kafka or HTTP sink takes "
        f"{MAX_RECORD_BYTES}",
        "Select fewer columns in the stage, send to a table sink, or let such emissions be quarantined "
        "(`too_large: quarantine` at the sink); nothing was published.",
    )
