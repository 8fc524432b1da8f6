"""Emissions in an envelope such as Debezium's: what was, what is, and where it comes from, as JSON text."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.core.json_columns import json_texts, object_texts

DELETION = '{"op":"d",'
"""How the text of a deletion begins, and no other."""


def envelope_texts(
    before: pa.StructArray, after: pa.StructArray, source: Mapping[str, pa.Array], at: pa.Int64Array
) -> pa.StringArray:
    """`{"op": …, "before": …, "after": …, "source": {…}, "ts_ms": …}` of each emission.

    `op` is `c` where nothing was before, `d` where nothing is after, else `u`. `at`: epoch ms, when it
    happened.
    """
    is_new = pc.if_else(before.is_null(), "c", "u")
    parts = {
        "op": json_texts(pc.if_else(after.is_null(), "d", is_new)),
        "before": _or_null(before),
        "after": _or_null(after),
        "source": object_texts(list(source), [_or_null(column) for column in source.values()]),
        "ts_ms": _or_null(at),
    }
    return object_texts(list(parts), list(parts.values()))


def _or_null(values: pa.Array) -> pa.StringArray:
    return pc.fill_null(json_texts(values), "null")
