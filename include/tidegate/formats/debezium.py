"""`format: debezium`: the JSON envelope of a change, with and without Kafka Connect's `schema` and
`payload`.

Creates, updates and snapshot reads give the row `after`. A deletion gives the key's columns of `before`, and
its row in `Decoded.deletions`. Rows are read as strictly as by `format: json`. Of `before`, which can lack
columns that the database does not log, only the key's columns are read. Of `source`, which contains the
change's place in the database's log, only the fields of a `sequence` are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.formats.decoded import Decoded, malformed
from tidegate.formats.json import (
    NO_OLDER_NAMES,
    JsonDecoder,
    OlderNames,
    columns_of,
    object_type,
    objects_of,
    with_current_names,
)
from tidegate.formats.records import RecordLayout
from tidegate.formats.registry import Format
from tidegate.kernel.json_text import json_texts, object_texts

_ROW_OPERATIONS = ("c", "u", "r")
_WITHOUT_ROW = {
    "t": "The table was truncated (`op: t`): the deleted keys are not in the record",
    "m": "A message of the database (`op: m`) has no row",
}
SOURCE_TEXTS = ("connector", "name", "stage")
"""The fields of `source` that are the same for all emissions of a stage."""


class DebeziumDecoder:
    """Decodes changes to rows of `schema`.

    Args:
        key: The columns that make the key; empty if the record's own key is used.
        aliases: Older names of columns in records.
        sequence: The fields of `source` that order changes, for `Decoded.sequence`.
    """

    def __init__(
        self,
        schema: pa.Schema,
        key: Sequence[str],
        aliases: OlderNames = NO_OLDER_NAMES,
        sequence: pa.Schema | None = None,
    ) -> None:
        self.schema = schema
        self._type = pa.struct(list(schema))
        self._aliases = aliases
        self._sequence = None if sequence is None else pa.struct(list(sequence))
        self._decoder = msgspec.json.Decoder(_envelope_type(self._type, key, aliases, self._sequence))

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        """Decode the row of each change. A change without a usable row has a reason."""
        envelopes, reasons = objects_of(self._decoder, values)
        rows: list[Any] = [None] * len(values)
        sources: list[Any] = [None] * len(values)
        paths: dict[int, str] = {}
        source_paths: dict[int, str] = {}
        deletions = []
        for place, envelope in enumerate(envelopes):
            if envelope is None:
                continue
            change, path = (envelope, "$") if envelope.payload is None else (envelope.payload, "$.payload")
            if self._sequence is not None:
                sources[place], source_paths[place] = change.source, f"{path}.source"
            # only a deletion has its columns in `before`
            if change.op == "d" and change.after is None:
                rows[place], paths[place] = change.before, f"{path}.before"
                deletions.append(place)
            elif change.op in _ROW_OPERATIONS and change.after is not None:
                rows[place], paths[place] = change.after, f"{path}.after"
            else:
                reasons[place] = malformed(_unusable(change.op, path))
        named = with_current_names(rows, self._type, self._aliases)
        sequence = None
        if self._sequence is not None:
            # before the rows: a change whose place cannot be read gives no row
            sequence = columns_of(sources, self._sequence, reasons, source_paths)
            if reasons:
                named = [None if place in reasons else row for place, row in enumerate(named)]
        columns = columns_of(named, self._type, reasons, paths)
        used = tuple(place for place in deletions if place not in reasons)
        return Decoded(columns, reasons, used, sequence)


class DebeziumKeyDecoder:
    """Decodes the key's columns from a record's own key: an object, with and without Connect's wrapper."""

    def __init__(self, schema: pa.Schema, aliases: OlderNames = NO_OLDER_NAMES) -> None:
        self.schema = schema
        self._columns = JsonDecoder(schema, aliases)

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        """Decode the columns of each key; a key without them gives nulls."""
        return self._columns.decode([value and _unwrapped(value) for value in values])


class _Wrapper(msgspec.Struct):
    schema: msgspec.Raw
    payload: msgspec.Raw


_WRAPPER = msgspec.json.Decoder(_Wrapper)


def _unwrapped(key: bytes) -> bytes:
    """Return the payload of a key with a schema; other keys as they are, for the decoder to check."""
    try:
        return bytes(_WRAPPER.decode(key).payload)
    except msgspec.DecodeError:
        return key


def _envelope_type(
    row: pa.StructType, key: Sequence[str], aliases: OlderNames, sequence: pa.StructType | None
) -> type[msgspec.Struct]:
    """Return a class with `op`, `before`, `after`, `source` if there is a sequence, and an optional
    `payload`.

    The payload is a change of the same form.
    """
    change: list[tuple[str, Any, Any]] = [
        ("op", str | None, None),
        ("before", object_type(row, key, aliases) | None, None),
        ("after", object_type(row, aliases=aliases) | None, None),
    ]
    if sequence is not None:
        change.append(("source", object_type(sequence) | None, None))
    payload = msgspec.defstruct("Object", change, gc=False)
    return msgspec.defstruct("Object", [*change, ("payload", payload | None, None)], gc=False)


def _unusable(operation: str | None, path: str) -> str:
    """Return why a change without a row cannot be used."""
    if operation is None:
        return f"Expected an operation: c, u, r or d - at `{path}.op`"
    if operation == "d":
        return f"Expected no row after `op: d` - at `{path}.after`"
    if operation in _ROW_OPERATIONS:
        return f"Expected the row of `op: {operation}`, got `null` - at `{path}.after`"
    why = _WITHOUT_ROW.get(operation, f"Expected an operation: c, u, r or d, got {operation!r}")
    return f"{why} - at `{path}.op`"


def envelope_columns(value: pa.Schema, windowed: Mapping[str, pa.DataType]) -> pa.Schema:
    """Return the columns of envelopes. `value`: the columns of the values; `windowed`: the columns of
    windows.

    Args:
        value: The columns of `before` and `after`.
        windowed: Column -> type; empty without windows.
    """
    whole = pa.struct(list(value))
    source = {
        **dict.fromkeys(SOURCE_TEXTS, pa.string()),
        "batch": pa.int64(),
        "reason": pa.string(),
        "position": pa.string(),
        "ts_ms": pa.int64(),
        **windowed,
    }
    parts = {"op": pa.string(), "before": whole, "after": whole, "source": pa.struct(list(source.items()))}
    return pa.schema(list((parts | {"ts_ms": pa.int64()}).items()))


def enveloped(
    before: pa.StructArray, after: pa.StructArray, source: Mapping[str, pa.Array], at: pa.Int64Array
) -> pa.StructArray:
    """Return the envelopes of `envelope_texts` as structs with the columns of `envelope_columns`.

    Args:
        source: Name -> column, the fields of `source`.
        at: The instant of the emission, in epoch ms.
    """
    origin = pa.StructArray.from_arrays(list(source.values()), list(source))
    parts = {"op": _operations(before, after), "before": before, "after": after, "source": origin}
    return pa.StructArray.from_arrays([*parts.values(), at], [*parts, "ts_ms"])


def envelope_texts(
    before: pa.StructArray, after: pa.StructArray, source: Mapping[str, pa.Array], at: pa.Int64Array
) -> pa.StringArray:
    """Return `{"op": …, "before": …, "after": …, "source": {…}, "ts_ms": …}` for each emission.

    `op` is `c` if `before` is null, `d` if `after` is null, else `u`.

    Args:
        source: name -> column, the fields of `source`.
        at: The instant of the emission, in epoch ms.
    """
    parts = {
        "op": json_texts(_operations(before, after)),
        "before": _or_null(before),
        "after": _or_null(after),
        "source": object_texts(list(source), [_or_null(column) for column in source.values()]),
        "ts_ms": _or_null(at),
    }
    return object_texts(list(parts), list(parts.values()))


def _operations(before: pa.StructArray, after: pa.StructArray) -> pa.StringArray:
    # as in Debezium: create, update, delete
    is_new = pc.if_else(before.is_null(), "c", "u")
    return pc.if_else(after.is_null(), "d", is_new)


def _or_null(values: pa.Array) -> pa.StringArray:
    return pc.fill_null(json_texts(values), "null")


def _decoder(layout: RecordLayout) -> DebeziumDecoder:
    fields = None if layout.sequence is None else layout.sequence.of_source
    return DebeziumDecoder(layout.columns, layout.key, layout.aliases, fields)


FORMATS = (
    Format(
        "debezium",
        _decoder,
        null_key_decoder=DebeziumKeyDecoder,
        is_json=True,
        has_envelope=True,
        is_sent=True,
    ),
)
