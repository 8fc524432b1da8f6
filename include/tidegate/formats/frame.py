"""Decode records to rows: columns, canonical key and hash, time, and a reason where a row cannot be used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.errors import RecordFailed
from tidegate.formats.decoded import Decoded, Reason, WatchedDecoder
from tidegate.formats.metadata import CREATE_TIME, Header
from tidegate.formats.own_keys import NullValueKeys, OwnKeyColumns
from tidegate.formats.records import (
    EMPTY,
    INPUT,
    PART,
    REMOVED,
    SOURCE_HEADER,
    RecordLayout,
    Records,
    SequenceParts,
    array_at,
    explode,
    meant_rows,
    pack_headers,
    sequence_texts,
    with_array_at,
    with_replayed_root,
)
from tidegate.formats.registry import formats
from tidegate.formats.text import texts_of
from tidegate.kernel.keys import LEAST_HASH, are_none, canonical_keys, key_hashes, no_key
from tidegate.kernel.rows import mask, places_among

_INTERNAL = pa.schema(
    [
        pa.field("__topic", pa.string()),
        pa.field("__partition", pa.int32()),
        pa.field("__offset", pa.int64()),
        pa.field("__turn", pa.int64()),
        pa.field(PART, pa.int32()),
        pa.field("__key", pa.string()),
        pa.field("__hash", pa.int64()),
        pa.field("__timestamp", pa.int64()),
        pa.field("__recorded", pa.int64()),
        pa.field("__tombstone", pa.bool_()),
        pa.field("__chain", pa.string()),
        pa.field("__reason", pa.string()),
        pa.field("__input", INPUT),
        pa.field(EMPTY, pa.bool_()),
    ]
)
SEQUENCE = "__sequence"
_NOT_TEXT = b"\xff"
_CHAIN = r"^[A-Za-z0-9._-]+/[0-9]{1,9}/[0-9]{1,18}(;|$)"


class FrameDecoder:
    """Decodes records of a source to rows of `schema`: internal columns, whose names begin with `__`, then
    the source's.

    The internal columns are::

        __topic, __partition, __offset  the record's position
        __turn       its place in the partition
        __part       its index among the elements exploded from one record
        __key        the canonical key
        __hash       the key's xxHash64, or that of the position if the key is null; never the least number
        __timestamp  epoch ms
        __recorded   the same by Kafka
        __tombstone  whether the row deletes its key
        __chain      the hops before this one
        __reason     why the record is quarantined, or null; the source's columns are null then
        __input      the whole record, if it is quarantined or `keeps_input` is set
        __empty      whether there was nothing to explode
        __removed    whether the source's filter removes the row, if there is one; a row in quarantine is not
                     removed
        __sequence   a text that sorts like the changes of a key, if the layout has a sequence; null of a
                     tombstone without one

    Args:
        believed_until_ms: A later timestamp is in the future, and its record is quarantined; None believes
            all.
        keeps_input: Keep the whole record in each row.
    """

    def __init__(self, layout: RecordLayout, believed_until_ms: int | None, keeps_input: bool) -> None:
        self._layout = layout
        self._believed_until_ms = believed_until_ms
        self._keeps_input = keeps_input
        format_ = formats()[layout.format]
        self._values = WatchedDecoder(format_.decoder(layout.with_text_time))
        self._of_records = format_.of_records
        self._own_key_columns = None if layout.key_format == "text" else OwnKeyColumns(layout)
        # Kafka's tombstones have no value, so the key's columns are read from the record's key
        from_own_keys = self._own_key_columns is None and layout.key
        self._null_value_keys = NullValueKeys(layout) if from_own_keys else None
        # where a record without a key is another one than a record whose key has nulls only
        own_names = layout.key_columns.names
        self._has_own_key = layout.keeps_null_keys and bool(own_names) and list(layout.key) == own_names
        removed = [] if layout.filter is None else [pa.field(REMOVED, pa.bool_())]
        sequence = [] if layout.sequence is None else [pa.field(SEQUENCE, pa.string())]
        self._metadata_names = layout.metadata.schema.names
        self.schema = pa.schema([*_INTERNAL, *removed, *sequence, *layout.row_columns])

    def decode(self, records: Records) -> Iterator[pa.RecordBatch]:
        """Yield rows in the order of the records: one batch, or several if a column is exploded.

        Raises RecordFailed if the source's filter has no result for a record.

        Args:
            records: Consumed or replayed records of one topic-partition.
        """
        rows = self._read(records)
        for piece in self._exploded(rows, records.values):
            # a replay of one exploded element must not emit the record's other elements again
            if records.parts is not None:
                record, part = piece.column("__record"), piece.column(PART)
                whole = piece.column("__malformed").is_valid()
                piece = piece.filter(meant_rows(records.parts, record, part, whole))
            yield self._judged(piece, records)

    def _read(self, records: Records) -> pa.RecordBatch:
        """Return a row for each record: its columns, and what `_judged` needs beside them."""
        values = records.values if self._of_records is None else self._of_records(records)
        decoded = self._values.decode(values)
        count = len(records.values)
        malformed = _at(decoded.reasons, count)
        # a deletion has columns (Debezium's `before`), a null value has none: both are tombstones
        deletion = _mask(decoded.deletions, count)
        tombstone = pc.and_(pc.or_(decoded.columns.is_null(), deletion), malformed.is_null())
        null_value = pc.and_not(tombstone, deletion)
        own_key, not_text = self._own_keys(records.keys, null_value)
        key_columns, bad_key = self._columns_of_keys(records.keys)
        metadata, bad_metadata = self._layout.metadata.read(records)
        chain, unrooted = self._chains(records.headers)
        internal = {
            "__record": pa.array(np.arange(count)),
            "__offset": pa.array(records.offsets, pa.int64()),
            "__turn": pa.array(records.offsets if records.turns is None else records.turns, pa.int64()),
            "__recorded": pa.array(records.timestamps, pa.int64()),
            "__tombstone": tombstone,
            "__null_value": null_value,
            "__malformed": malformed,
            "__own_key": own_key,
            "__key_not_text": not_text,
            "__bad_key": bad_key,
            "__chain": chain,
            "__unrooted": unrooted,
            "__bad_metadata": _at(bad_metadata, count),
        }
        if self._has_own_key:
            internal["__keyless"] = pa.array([key is None for key in records.keys], pa.bool_())
        columns = dict(zip(self._layout.columns.names, decoded.columns.flatten(), strict=True))
        columns |= key_columns | metadata
        internal["__bad_time"] = pa.nulls(count, pa.string())
        if self._layout.makes_instants:
            columns, internal["__bad_time"] = self._with_instants(columns)
        if self._layout.sequence is not None:
            internal[SEQUENCE] = _sequence(self._layout.sequence, decoded, columns)
        return pa.RecordBatch.from_pydict(internal | columns)

    def _columns_of_keys(self, keys: Sequence[bytes | None]) -> tuple[dict[str, pa.Array], pa.StringArray]:
        """Return the columns of the records' own keys, and why each key cannot be used."""
        if self._own_key_columns is None:
            return {}, pa.nulls(len(keys), pa.string())
        columns, reasons = self._own_key_columns.decode(keys)
        return columns, _at(reasons, len(keys))

    def _own_keys(
        self, keys: Sequence[bytes | None], null_value: pa.BooleanArray
    ) -> tuple[pa.StringArray, pa.BooleanArray]:
        """Return the records' own keys, and which of them are not text.

        If columns make the key, only the own key of a null value counts, since a null value has no columns.
        """
        if self._layout.key or self._layout.keyless:
            needed = self._null_value_keys is not None and self._null_value_keys.needs_own_keys
            if not needed or not null_value.true_count:
                return pa.nulls(len(keys), pa.string()), pa.repeat(False, len(keys))
            keys = [key if counts else None for key, counts in zip(keys, null_value.to_pylist(), strict=True)]
        if self._layout.schemas.writers is not None:
            keys = [
                _NOT_TEXT if key and key[0] == 0 else key for key in keys
            ]  # the key is encoded by a schema, too, so it is not text
        texts, not_text = texts_of(keys)
        return texts, _mask(not_text, len(keys))

    def _chains(self, headers: Sequence[Sequence[Header] | None]) -> tuple[pa.StringArray, pa.BooleanArray]:
        """Return the chain in the newest header of each record, and which chains cannot be used."""
        # most sources have no headers at all
        if not any(headers):
            return pa.nulls(len(headers), pa.string()), pa.repeat(False, len(headers))
        texts, not_text = texts_of([_chain(record_headers or ()) for record_headers in headers])
        unrooted = _mask(not_text, len(headers))
        if self._layout.rooted:
            rooted = pc.fill_null(pc.match_substring_regex(texts, _CHAIN), True)
            unrooted = pc.or_(unrooted, pc.invert(rooted))
        return texts, unrooted

    def _exploded(self, rows: pa.RecordBatch, values: Sequence[bytes | None]) -> Iterator[pa.RecordBatch]:
        if self._layout.explode is None:
            unexploded = rows.append_column(PART, pa.repeat(pa.scalar(0, pa.int32()), rows.num_rows))
            yield unexploded.append_column(EMPTY, pa.repeat(False, rows.num_rows))
            return
        sizes = pc.fill_null(pc.binary_length(pa.array(values, pa.binary())), 0)
        for piece in explode(rows, self._layout.explode, sizes):
            empty = pc.and_not(piece.column(EMPTY), piece.column("__tombstone"))
            yield piece.set_column(piece.schema.get_field_index(EMPTY), EMPTY, empty)

    def _judged(self, rows: pa.RecordBatch, records: Records) -> pa.RecordBatch:
        """Return rows of `schema`, with a reason for each row that cannot be used."""
        for name, path in self._layout.nested.items():
            rows = rows.append_column(name, array_at(rows, path))
        key = self._key(rows)
        timestamp, bad_time = self._timestamp(rows)
        removed = self._removed(rows, records)
        reason = self._reason(rows, key, (timestamp, bad_time), removed)
        if self._layout.keeps_null_keys:
            key = pc.if_else(reason.is_null(), key.fill_null(no_key(records.topic, records.partition)), key)
        usable = reason.is_null()
        topic, partition = (
            pa.repeat(pa.scalar(value, type_), rows.num_rows)
            for value, type_ in ((records.topic, pa.string()), (records.partition, pa.int32()))
        )
        chain, offset = rows.column("__chain"), rows.column("__offset")
        if records.replayed_from is not None:
            chain = with_replayed_root(records.replayed_from, partition, offset, chain)
        columns = dict(zip(rows.schema.names, rows.columns, strict=True)) | {
            "__topic": topic,
            "__partition": partition,
            "__chain": chain,
            "__key": key,
            "__hash": _hashes(key, topic, partition, offset),
            "__timestamp": timestamp,
            "__reason": reason,
            "__input": self._input(rows, records, reason),
            EMPTY: pc.and_(usable, rows.column(EMPTY)),
            REMOVED: pc.and_(usable, removed),
        }
        filled = pc.and_not(usable, rows.column("__tombstone"))
        if filled.false_count:
            usable_rows = pc.if_else(filled, pa.array(np.arange(len(usable))), None)
            # null where a row is unusable: a value that was partly read must not be used by mistake
            of_value = [name for name in self._layout.row_columns.names if name not in self._metadata_names]
            columns |= {name: columns[name].take(usable_rows) for name in of_value}
            # a tombstone has metadata all the same
            columns |= {name: pc.if_else(usable, columns[name], None) for name in self._metadata_names}
        return pa.RecordBatch.from_arrays([columns[name] for name in self.schema.names], schema=self.schema)

    def _removed(self, rows: pa.RecordBatch, records: Records) -> pa.BooleanArray:
        """Return which rows the source's filter removes: those for which it is not true. Unreadable records
        stay, and so do deletions, unless the filter names nothing but metadata, which they have.
        """
        condition = self._layout.filter
        if condition is None:
            return pa.repeat(False, rows.num_rows)
        unreadable = pc.or_(rows.column("__malformed").is_valid(), rows.column("__bad_metadata").is_valid())
        stays = pc.or_(unreadable, rows.column(EMPTY))
        if not condition.columns or not condition.columns <= set(self._metadata_names):
            stays = pc.or_(stays, rows.column("__tombstone"))
        removed, unfit = condition.rejected(rows.select(self._layout.row_columns.names), pc.invert(stays))
        if unfit:
            place = (records.topic, records.partition, rows.column("__offset")[unfit[0].row].as_py())
            raise RecordFailed.with_command(unfit[0].what, unfit[0].fix, *place)
        return removed

    def _key(self, rows: pa.RecordBatch) -> pa.StringArray:
        """Return the key of the columns, or the record's own, also for a null value."""
        names, with_nulls = self._layout.key, self._layout.keeps_null_keys
        own, null_value = rows.column("__own_key"), rows.column("__null_value")
        if not names:
            return own
        key = canonical_keys(names, [rows.column(name) for name in names], with_nulls)
        if self._has_own_key:
            key = pc.if_else(rows.column("__keyless"), pa.scalar(None, pa.string()), key)
        if self._null_value_keys is None or not null_value.true_count:
            return key
        own = self._null_value_keys.of_rows(own.filter(null_value), rows.filter(null_value))
        return pc.replace_with_mask(key, null_value, own)

    def _with_instants(self, columns: Mapping[str, pa.Array]) -> tuple[dict[str, pa.Array], pa.StringArray]:
        """Return the columns with instants in place of the texts of times, and why a text is no time."""
        rule, path = self._layout.time, self._layout.timestamp
        assert rule is not None
        assert path is not None
        instants, reasons = rule.instants(array_at(columns, path), path)
        return with_array_at(columns, path, instants), reasons

    def _timestamp(self, rows: pa.RecordBatch) -> tuple[pa.Int64Array, pa.StringArray]:
        """Return epoch ms of the record or of the declared column, and why the column has no time.

        A tombstone has the record's, unless the column is one that a tombstone has.
        """
        recorded = rows.column("__recorded")
        if self._layout.timestamp is None:
            return recorded, rows.column("__bad_time")
        declared, reasons = array_at(rows, self._layout.timestamp), rows.column("__bad_time")
        if self._layout.time is not None and not self._layout.makes_instants:
            declared, reasons = self._layout.time.instants(declared, self._layout.timestamp)
        if pa.types.is_timestamp(declared.type):
            declared = _milliseconds(declared)
        if self._layout.timestamp in self._metadata_names:
            return declared, reasons
        tombstone = rows.column("__tombstone")
        return pc.if_else(tombstone, recorded, declared), pc.if_else(tombstone, None, reasons)

    def _reason(
        self,
        rows: pa.RecordBatch,
        key: pa.StringArray,
        time: tuple[pa.Int64Array, pa.StringArray],
        removed: pa.BooleanArray,
    ) -> pa.StringArray:
        """Return why a row cannot be used; the first of several reasons counts.

        A removed row needs neither key nor sequence nor time, and neither does one without an element. A time
        that it has must be believed all the same, since it advances the time of its partition.
        """
        filled = pc.invert(pc.or_(rows.column(EMPTY), removed))
        keeps_null_keys = self._layout.keeps_null_keys
        keyless = pc.and_not(pc.and_(key.is_null(), filled), keeps_null_keys)
        reserved = are_none(key) if keeps_null_keys else pa.repeat(False, rows.num_rows)
        of_columns = bool(self._layout.key)
        timestamp, bad_time = time
        latest = np.iinfo(np.int64).max if self._believed_until_ms is None else self._believed_until_ms
        cases = [
            (rows.column("__unrooted"), Reason.MALFORMED_SOURCE_CHAIN),
            (rows.column("__key_not_text"), Reason.KEY_NOT_TEXT),
            (rows.column("__bad_key").is_valid(), rows.column("__bad_key")),
            (rows.column("__bad_metadata").is_valid(), rows.column("__bad_metadata")),
            (pc.and_(keyless, pc.and_(rows.column("__tombstone"), of_columns)), Reason.TOMBSTONE_WITHOUT_KEY),
            (keyless, Reason.NULL_KEY_COLUMN if of_columns else Reason.NULL_KEY),
            (reserved, Reason.RESERVED_KEY),
            (pc.and_(bad_time.is_valid(), filled), bad_time),
            (pc.and_(timestamp.is_null(), filled), Reason.NO_TIMESTAMP),
            (pc.less(timestamp, 0), Reason.NEGATIVE_TIMESTAMP),
            (pc.greater(timestamp, latest), Reason.FUTURE_TIMESTAMP),
        ]
        if self._layout.sequence is not None:
            has_no_sequence = rows.column(SEQUENCE).is_null()
            if formats()[self._layout.format].has_envelope:
                has_no_sequence = pc.and_not(
                    has_no_sequence, rows.column("__null_value")
                )  # Debezium sends it right behind the deletion, which has the sequence
            cases.append((pc.and_not(has_no_sequence, removed), Reason.NO_SEQUENCE))
        reason = rows.column("__malformed")
        for applies, text in cases:
            if applies.true_count:
                text_or_column = str(text) if isinstance(text, Reason) else text
                reason = pc.if_else(
                    pc.and_(reason.is_null(), pc.fill_null(applies, False)), text_or_column, reason
                )
        return reason

    def _input(self, rows: pa.RecordBatch, records: Records, reason: pa.StringArray) -> pa.StructArray:
        """Return the records of unusable rows, or of all rows."""
        if not self._keeps_input and reason.null_count == len(reason):
            return pa.nulls(len(reason), INPUT)
        # only the records of unusable rows, unless all are asked for: a record can have megabytes
        selected = pa.repeat(True, len(reason)) if self._keeps_input else reason.is_valid()
        places = rows.column("__record").filter(selected).to_pylist()
        fields = [
            pa.array([source[place] for place in places], field.type)
            for source, field in zip((records.keys, records.values), INPUT, strict=False)
        ]
        headers = pa.array([pack_headers(records.headers[place]) for place in places], pa.binary())
        parts = self._parts(rows, records).filter(selected)
        recorded = rows.column("__recorded").filter(selected)
        types = records.timestamp_types or [CREATE_TIME] * len(records.offsets)
        timestamp_types = pa.array([types[place] for place in places], pa.int8())
        columns = [*fields, headers, reason.filter(selected), parts, recorded, timestamp_types]
        inputs = pa.StructArray.from_arrays(columns, fields=list(INPUT))
        return inputs.take(places_among(mask(selected)))

    def _parts(self, rows: pa.RecordBatch, records: Records) -> pa.Int32Array:
        """Return which element of its record each row is; null stands for the whole record."""
        if records.parts is not None:
            return pa.array(records.parts, pa.int32()).take(rows.column("__record"))
        if self._layout.explode is None:
            return pa.nulls(rows.num_rows, pa.int32())
        return pc.if_else(rows.column("__malformed").is_null(), rows.column(PART), None)


def _sequence(parts: SequenceParts, decoded: Decoded, columns: Mapping[str, pa.Array]) -> pa.StringArray:
    """Return the sequence of each row as one text."""
    if decoded.sequence is not None:
        return sequence_texts(decoded.sequence.flatten())
    return sequence_texts([array_at(columns, path) for path in parts.columns])


def _at(reasons: Mapping[int, str], count: int) -> pa.StringArray:
    """Return the reason of each row that has one; null for the others."""
    if not reasons:
        return pa.nulls(count, pa.string())
    return pa.array(map(reasons.get, range(count)), pa.string())


def _mask(rows: Sequence[int], count: int) -> pa.BooleanArray:
    mask = np.zeros(count, bool)
    mask[list(rows)] = True  # a list: numpy takes an empty tuple as an index of all elements
    return pa.array(mask)


def _chain(headers: Sequence[Header]) -> bytes | None:
    # header names may repeat in Kafka: the newest counts
    return next((value for name, value in reversed(headers) if name == SOURCE_HEADER), None)


def _milliseconds(times: pa.TimestampArray) -> pa.Int64Array:
    """Return milliseconds since 1970, rounded down, so that an instant before 1970 stays before it."""
    microseconds = times.cast(pa.int64())
    mask = times.is_null().to_numpy(zero_copy_only=False)
    return pa.array(microseconds.fill_null(0).to_numpy() // 1000, mask=mask)


def _hashes(
    keys: pa.StringArray, topic: pa.StringArray, partition: pa.Int32Array, offset: pa.Int64Array
) -> pa.Int64Array:
    """Return the hash that distributes rows: of the key, or without one of the position."""
    if not keys.null_count:
        return key_hashes(keys)
    # with a single hash, all rows without a key would be in one task
    keyless = keys.is_null()
    topic, *numbers = (part.filter(keyless) for part in (topic, partition, offset))
    positions = pc.binary_join_element_wise(topic, *(number.cast(pa.string()) for number in numbers), "/")
    # LEAST_HASH is reserved
    position_hashes = pc.max_element_wise(key_hashes(positions), LEAST_HASH + 1)
    return pc.replace_with_mask(key_hashes(keys), keyless, position_hashes)
