"""Records of Kafka as they are consumed, the layout that a source declares, and the rows that they become."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tidegate.expressions import Expression
from tidegate.formats.csv import RFC_4180, Csv
from tidegate.formats.metadata import HEADERS, Header, RecordMetadata
from tidegate.formats.schemas import SourceSchemas
from tidegate.formats.times import INSTANT, TimeRule
from tidegate.kernel.rows import places_among
from tidegate.kernel.strategies.in_sequence import SEPARATOR

SOURCE_HEADER = "tidegate-source"
"""The header that has a record's source chain: `topic/partition/offset` joined by `;`, oldest first."""
INPUT = pa.struct(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        # packed, since Spark's size check of an Arrow batch is quadratic for a list that is mostly null
        pa.field("headers", pa.binary()),
        pa.field("reason", pa.string()),
        pa.field("part", pa.int32()),
        pa.field("recorded", pa.int64()),
        pa.field("timestamp_type", pa.int8()),
    ]
)
"""A whole record, and why it cannot be used.

`headers` is packed by `pack_headers`, and null if there are none. `part` is the index of the one element of
the exploded list that cannot be used; null if the whole record cannot be used; EMISSION if it is not a
record, but an emission. `recorded` is the record's own timestamp in Kafka, in epoch ms, `timestamp_type` its
place in TIMESTAMP_TYPES; both are null for an emission.
"""
EMISSION = -1
"""The `part` of an emission."""
_PACKER = msgspec.msgpack.Encoder()
_UNPACKER = msgspec.msgpack.Decoder(list[tuple[str, bytes | None]])
PART, EMPTY, REMOVED = "__part", "__empty", "__removed"
_MOST_BYTES = 64 * 1024 * 1024
"""The bytes of rows in one piece. Each row counts as its whole record, since that is what a row copies at
most.
"""
_DIGITS = 19
"""The digits of the largest bigint; days and microseconds have no more."""
_ESCAPE = "\x01"
"""Escapes itself and SEPARATOR in texts, which would sort in another order."""


@dataclass(frozen=True)
class Records:
    """Records of one topic-partition, in the order of their offsets.

    Args:
        timestamps: Epoch ms.
        parts: For replayed records: the index of the one element of the exploded list that is replayed; None:
            all.
        replayed_from: The topic that comes first in the source chains of replayed records; None for other
            records.
        timestamp_types: Places in TIMESTAMP_TYPES; None: the producer has set all timestamps.
        turns: The order of the records; None: that of their offsets.
    """

    topic: str
    partition: int
    offsets: Sequence[int]
    timestamps: Sequence[int]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    headers: Sequence[Sequence[Header] | None]
    parts: Sequence[int | None] | None = None
    replayed_from: str | None = None
    timestamp_types: Sequence[int | None] | None = None
    turns: Sequence[int] | None = None


@dataclass(frozen=True)
class SequenceParts:
    """The parts of a change's sequence, the most significant first.

    Args:
        columns: Columns of the row.
        of_source: For Debezium, fields of `source`, with their types.
    """

    columns: tuple[str, ...] = ()
    of_source: pa.Schema | None = None


@dataclass(frozen=True)
class RecordLayout:
    """The layout of a source's records, in Arrow's types. It can be pickled.

    Args:
        key: The columns of the key; empty for the record's own key.
        timestamp: A column, or a field, of epoch ms or of timestamps; None for the record's own timestamp.
        time: The rule by which `timestamp` is read; None: it has epoch ms, or instants that its format reads.
        explode: A column of lists, or a field, each of whose elements becomes a row. In `key` and `timestamp`
            it is the element.
        rooted: Whether source chains must begin with a position.
        schemas: The schemas of Avro, Protobuf and JSON; see `schemaful_decoder`.
        message: The Protobuf message; see `schemaful_decoder`.
        aliases: Column -> its names in older records, the newest first.
        csv: How rows of CSV are written.
        sequence: The parts that order the changes of a key.
        key_format: The format of the record's own key; `text` has no columns.
        key_columns: The columns that are read from the record's own key.
        key_schemas: The schemas of the record's own key.
        filter: The condition that removes records for which it is not true; None: no record is removed.
        metadata: The columns that are read beside the value.
        nested: Column of the key -> the path of the field that it is.
        keeps_null_keys: Whether records without a key, or with a null in it, can be used.
        keyless: Whether no record has a key, whatever its own one is.
        coerces: Whether values and keys of JSON are converted to the types of their columns.
    """

    format: str
    columns: pa.Schema
    key: tuple[str, ...] = ()
    timestamp: str | None = None
    explode: str | None = None
    rooted: bool = False
    schemas: SourceSchemas = field(default_factory=SourceSchemas)
    message: str | None = None
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    csv: Csv = RFC_4180
    sequence: SequenceParts | None = None
    key_format: str = "text"
    key_columns: pa.Schema = field(default_factory=lambda: pa.schema([]))
    key_schemas: SourceSchemas = field(default_factory=SourceSchemas)
    filter: Expression | None = None
    metadata: RecordMetadata = field(default_factory=RecordMetadata)
    nested: Mapping[str, str] = field(default_factory=dict)
    time: TimeRule | None = None
    keeps_null_keys: bool = False
    keyless: bool = False
    coerces: bool = False
    row_columns: pa.Schema = field(init=False)
    """The columns of a row: `columns`, with the element in place of an exploded list, those that are read
    beside the value (from the record's own key, and `metadata`), and `nested`.
    """

    def __post_init__(self) -> None:
        """Derive the columns of rows."""
        columns = [*self.columns, *self.key_columns, *self.metadata.schema]
        if self.explode is not None:
            name, *fields = self.explode.split(".")
            place = self.columns.get_field_index(name)
            element = type_at(self.columns, self.explode).value_type
            columns[place] = columns[place].with_type(type_with(columns[place].type, fields, element))
        columns += [pa.field(name, type_at(pa.schema(columns), path)) for name, path in self.nested.items()]
        object.__setattr__(self, "row_columns", pa.schema(columns))

    @property
    def with_text_time(self) -> RecordLayout:
        """The layout with a text in place of the instant that `time` makes of it."""
        if self.time is None or self.timestamp is None or not self.makes_instants:
            return self
        name, *fields = self.timestamp.split(".")
        place = self.columns.get_field_index(name)
        column = self.columns.field(place)
        text = column.with_type(type_with(column.type, fields, pa.string()))
        return replace(self, columns=self.columns.set(place, text), time=None)

    @property
    def makes_instants(self) -> bool:
        """Whether `time` makes the instants of the column that `timestamp` names, which is a text before."""
        if self.time is None or self.timestamp is None:
            return False
        is_instant: bool = type_at(self.row_columns, self.timestamp) == INSTANT
        return is_instant


def pack_headers(headers: Sequence[Header] | None) -> bytes | None:
    """Pack a record's headers into one value; None if there are none.

    Args:
        headers: Name and value, in order; names can repeat.
    """
    return _PACKER.encode(headers) if headers else None


def unpack_headers(packed: pa.BinaryArray) -> pa.ListArray:
    """Unpack what `pack_headers` has made of each record's headers, to an array of `HEADERS`."""
    if packed.null_count == len(packed):
        return pa.nulls(len(packed), HEADERS)
    return pa.array(
        [None if value is None else _UNPACKER.decode(value) for value in packed.to_pylist()], HEADERS
    )


def explode(rows: pa.RecordBatch, path: str, sizes: pa.Int64Array) -> Iterator[pa.RecordBatch]:
    """Yield rows with the elements of the column or field `path` in place of the list, and PART, the index in
    the list.

    A list that is null or empty gives one row, with a null element and EMPTY.

    Args:
        sizes: The bytes of each row's record, which limit the size of a piece: a record of a megabyte with
            ten thousand elements would take 10 GB in one piece.
    """
    lists = array_at(rows, path)
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy().astype(np.int64)
    repeats = np.maximum(lengths, 1)
    parents = np.repeat(np.arange(rows.num_rows), repeats)
    parts = np.arange(len(parents)) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    empty = lengths[parents] == 0
    # `flatten` leaves out empty and null lists, whose rows get a null element
    places = places_among(~empty)
    elements = lists.flatten()
    for piece in _pieces(sizes.to_numpy()[parents]):
        # a piece at a time: each element's row copies its whole record
        columns = dict(zip(rows.schema.names, rows.take(pa.array(parents[piece])).columns, strict=True))
        columns = with_array_at(columns, path, elements.take(places[piece]))
        columns |= {PART: pa.array(parts[piece].astype(np.int32)), EMPTY: pa.array(empty[piece])}
        yield pa.RecordBatch.from_pydict(columns)


def _pieces(sizes: npt.NDArray[np.int64]) -> Iterator[slice]:
    """Yield slices of consecutive rows with at most `_MOST_BYTES`; a larger row is alone."""
    ends = np.cumsum(sizes)
    start = 0
    while start < len(sizes):
        before = ends[start] - sizes[start]
        end = max(int(np.searchsorted(ends, before + _MOST_BYTES, side="right")), start + 1)
        yield slice(start, end)
        start = end


def sequence_texts(parts: Sequence[pa.Array]) -> pa.StringArray:
    """Return the parts of each row's sequence as one text; null if one of the parts is null.

    Args:
        parts: The most significant first: integers, decimals without a fraction, texts, dates or timestamps.

    For parts of the same types, texts compare as the sequences do; all integers are one type.

    Example: the bigint 7 is `0000000000000000007`.
    """
    texts = [_text(part) for part in parts]
    return texts[0] if len(texts) == 1 else pc.binary_join_element_wise(*texts, SEPARATOR)


def _text(part: pa.Array) -> pa.StringArray:
    if pt.is_string(part.type):
        return _escaped(part)
    if pt.is_decimal(part.type):
        return _number_texts(part, 38)
    if pt.is_date(part.type):
        part = part.cast(pa.int32())
    return _number_texts(part.cast(pa.int64()), _DIGITS)


def _escaped(text: pa.StringArray) -> pa.StringArray:
    """Escape a text so that it sorts by code points, also if other parts follow."""
    escaped = pc.replace_substring(text, _ESCAPE, _ESCAPE + "\x02")
    return pc.replace_substring(escaped, SEPARATOR, _ESCAPE + _ESCAPE)


def _number_texts(number: pa.Array, digits: int) -> pa.StringArray:
    """Return numbers with leading zeros.

    A number below 0, which is rare, is written as its distance from the least number, behind a sign that
    sorts before digits.
    """
    if not pc.any(pc.less(number, 0)).as_py():
        # with equal lengths, numbers sort as texts do
        return pc.utf8_lpad(number.cast(pa.string()), digits, "0")
    wide = number.cast(pa.decimal256(digits + 2, 0))
    below = pc.less(wide, pa.scalar(0, wide.type))
    # the smaller a number, the smaller its distance from the least one
    above_least = pc.add(wide, pa.scalar(10**digits, wide.type))
    text = pc.utf8_lpad(pc.if_else(below, above_least.cast(wide.type), wide).cast(pa.string()), digits, "0")
    return pc.binary_join_element_wise(pc.if_else(below, "-", ""), text, "")


def replayed_topic(topic: str, seq: int) -> str:
    """Return the topic that comes first in the source chains of what batch `seq` replays of `topic`.

    A consumer with `deduplicate: root` drops records by the first entry of their chain. It accepts these as
    new: no other record comes from such a topic, and within one replay offsets still rise.

    Example::

        replayed_topic("stock", 7)  # "stock.replay-7"
    """
    return f"{topic}.replay-{seq}"


def with_replayed_root(
    topic: str, partition: pa.Int32Array, offset: pa.Int64Array, chain: pa.StringArray
) -> pa.StringArray:
    """Return chains with a position in `topic` before the hops that they have.

    Example: `stock.replay-7`, partition 0 and offset 3 without a chain give `stock.replay-7/0/3`.
    """
    numbers = [number.cast(pa.string()) for number in (partition, offset)]
    root = pc.binary_join_element_wise(pa.scalar(topic), *numbers, "/")
    return pc.if_else(chain.is_null(), root, pc.binary_join_element_wise(root, chain, ";"))


def meant_rows(
    wanted_parts: Sequence[int | None], record: pa.Int64Array, part: pa.Int32Array, whole: pa.BooleanArray
) -> pa.BooleanArray:
    """Return which of the exploded rows are replayed.

    Args:
        wanted_parts: Per record, the index of the element that is replayed; None for all elements.
        record: Per row, the index of its record.
        part: Per row, its index in the exploded list.
        whole: Per row, whether it stands for the whole record.
    """
    place = pa.array(wanted_parts, pa.int32()).take(record)
    return pc.or_(whole, pc.fill_null(pc.equal(place, part), True))


def array_at(columns: Mapping[str, pa.Array] | pa.RecordBatch, path: str) -> pa.Array:
    """Return the column, or the field of a column's struct; null where the struct is null.

    Example: `array_at({"device": structs}, "device.id")`
    """
    name, *fields = path.split(".")
    return pc.struct_field(columns[name], fields) if fields else columns[name]


def type_at(schema: pa.Schema | pa.StructType, path: str) -> pa.DataType:
    """Return the type of the column or field. Raises KeyError if it does not exist."""
    name, *fields = path.split(".")
    type_ = schema.field(name).type
    for part in fields:
        type_ = type_.field(part).type
    return type_


def with_array_at(columns: Mapping[str, pa.Array], path: str, array: pa.Array) -> dict[str, pa.Array]:
    """Return the columns with another array in place of a column or of a field of its struct."""
    name, *fields = path.split(".")
    return {**columns, name: _replaced(columns[name], fields, array)}


def _replaced(column: pa.Array, fields: list[str], array: pa.Array) -> pa.Array:
    if not fields:
        return array
    names = [field.name for field in column.type]
    parts = {name: pc.struct_field(column, name) for name in names}
    parts[fields[0]] = _replaced(parts[fields[0]], fields[1:], array)
    return pa.StructArray.from_arrays(list(parts.values()), names, mask=column.is_null())


def type_with(type_: pa.DataType, fields: list[str], inner: pa.DataType) -> pa.DataType:
    """Return the type with another one in place of the field that the path `fields` names."""
    if not fields:
        return inner
    return pa.struct(
        [
            part.with_type(type_with(part.type, fields[1:], inner)) if part.name == fields[0] else part
            for part in type_
        ]
    )
