"""Canonical keys: the one text that stands for the values of a key's columns, byte for byte as Spark's."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tidegate.core.json_columns import json_texts, object_texts


def canonical_keys(names: Sequence[str], columns: Sequence[pa.Array]) -> pa.StringArray:
    """One column: its text, as `cast(… as string)` gives it. Several: a JSON object, in their order.

    Null where a column is. Types that can be keys: see `spec.keys`; days and times in the years 1 to 9999.
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
    """All digits: `0.0000001`, where JSON has `1E-7`."""
    texts = values.cast(pa.string())
    short = pc.match_substring(texts, "E")
    digits = pa.array([format(value, "f") for value in values.filter(short).to_pylist()], pa.string())
    return pc.replace_with_mask(texts, short, digits)


def _times(values: pa.TimestampArray) -> pa.StringArray:
    """`2026-01-31 10:30:00.5`, in UTC, with as much of a fraction as there is."""
    texts = values.cast(pa.timestamp("us")).cast(pa.string())
    return pc.ascii_rtrim(pc.ascii_rtrim(texts, "0"), ".")
