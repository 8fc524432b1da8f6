"""Canonical keys: the one text for the values of a key's columns, byte for byte as Spark writes it."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tidegate.kernel.json_columns import json_texts, object_texts


def canonical_keys(names: Sequence[str], columns: Sequence[pa.Array]) -> pa.StringArray:
    """Return the text of one column, as `cast(… as string)` gives it; for several, a JSON object in their
    order.

    Null if any of the columns is null. `spec.keys` lists the types that can be keys; days and times must be
    in the years 1 to 9999.

    Example: columns `id` 7 and `shop` "a" give `{"id":7,"shop":"a"}`.
    """
    if len(columns) == 1:
        return _texts(columns[0])
    return object_texts(names, [json_texts(column) for column in columns])


def _texts(values: pa.Array) -> pa.StringArray:
    if pt.is_decimal(values.type):
        return _decimals(values)
    if pt.is_timestamp(values.type):
        return _times(values)
    return values.cast(pa.string())


def _decimals(values: pa.Array) -> pa.StringArray:
    """Write all digits: `0.0000001`, where JSON has `1E-7`."""
    texts = values.cast(pa.string())
    short = pc.match_substring(texts, "E")
    digits = pa.array([format(value, "f") for value in values.filter(short).to_pylist()], pa.string())
    return pc.replace_with_mask(texts, short, digits)


def _times(values: pa.TimestampArray) -> pa.StringArray:
    """Write `2026-01-31 10:30:00.5`, in UTC, with as many digits of the fraction as needed."""
    texts = values.cast(pa.timestamp("us")).cast(pa.string())
    # in this order: a whole second loses its zeros first, and then the point
    return pc.ascii_rtrim(pc.ascii_rtrim(texts, "0"), ".")
