"""The outbox's columns, declared once: compute writes them, and whoever reads an outbox names them from here.

A row is an emission. Of a key's emissions in one batch, `ordinal` tells the order.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.lake.schema import HASH, KEY

ORDINAL, REASON, TIMESTAMP, AT, SOURCE, SEQ = "ordinal", "reason", "timestamp", "at", "source", "seq"
"""`timestamp` is the emission's own (epoch ms), `at` when it happened, `source` the chain of positions."""

VALUE, KEY_COLUMNS = "value", "key_columns"
"""Structs: what is emitted, null for a deletion; and the columns that the key was made of."""

WINDOW = ("window_start", "window_end")
"""Epoch ms; null without a window."""

ORDER = (SEQ, KEY, ORDINAL)
"""What rows of several batches are sorted by: a key's emissions in the order in which they went out."""

_TYPES: dict[str, pa.DataType] = {
    **dict.fromkeys((HASH, ORDINAL, *WINDOW, TIMESTAMP, AT, SEQ), pa.int64()),
    **dict.fromkeys((KEY, REASON, SOURCE), pa.string()),
}

SHARED_COLUMNS = pa.schema([(name, _TYPES[name]) for name in (HASH, KEY, *WINDOW, TIMESTAMP, SEQ)])
"""What the outbox of every stage has, whatever its values are: its table for others begins with these."""


def outbox_schema(
    value: pa.DataType, key_columns: pa.DataType, payloads: Mapping[str, pa.DataType]
) -> pa.Schema:
    """The outbox of a stage. `payloads`: the columns of what its sinks send (`spec.Payload.column`): null for
    a deletion, unless it is told in an envelope.
    """
    names = [HASH, KEY, ORDINAL, REASON, VALUE, KEY_COLUMNS, *payloads, *WINDOW, TIMESTAMP, AT, SOURCE, SEQ]
    types = {**_TYPES, **payloads, VALUE: value, KEY_COLUMNS: key_columns}
    return pa.schema([(name, types[name]) for name in names])


def window_columns(windowed: bool) -> tuple[str, ...]:
    """The window's columns, for readers that show them only where there are windows."""
    return WINDOW if windowed else ()


def parts_of(struct: pa.StructArray) -> dict[str, pa.Array]:
    """The columns in `value` or `key_columns`, by name; all of them are null where the struct is."""
    return {field.name: pc.struct_field(struct, field.name) for field in struct.type}
