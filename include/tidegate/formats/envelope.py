"""Write emissions in an envelope like Debezium's: the value before, the value now, and their source."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel.json_text import json_texts, object_texts

SOURCE_TEXTS = ("connector", "name", "stage")
"""The fields of `source` that are the same for all emissions of a stage."""


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
