"""The outbox's columns, declared once: compute writes them, and each reader of an outbox takes their names
here.

A row is an emission. `ordinal` gives the order of a key's emissions in one batch.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.storage.schema import HASH, KEY

ORDINAL, REASON, TIMESTAMP, AT, SOURCE, SEQ = "ordinal", "reason", "timestamp", "at", "source", "seq"
"""`timestamp` is the emission's own (epoch ms), `at` when it happened, `source` the chain of positions."""

VALUE, KEY_COLUMNS = "value", "key_columns"
"""Structs: what is emitted, null for a deletion; and the columns that the key was made of."""

WINDOW = ("window_start", "window_end")
"""Epoch ms; null without a window."""

ORDER = (SEQ, KEY, ORDINAL)
"""The sort order of rows of several batches: a key's emissions in the order in which they were emitted."""

_TYPES: dict[str, pa.DataType] = {
    **dict.fromkeys((HASH, ORDINAL, *WINDOW, TIMESTAMP, AT, SEQ), pa.int64()),
    **dict.fromkeys((KEY, REASON, SOURCE), pa.string()),
}

SHARED_COLUMNS = pa.schema([(name, _TYPES[name]) for name in (HASH, KEY, *WINDOW, TIMESTAMP, SEQ)])
"""The columns that the outbox of every stage has; its table for other engines begins with them."""


def outbox_schema(
    value: pa.DataType, key_columns: pa.DataType, payloads: Mapping[str, pa.DataType]
) -> pa.Schema:
    """Return the columns of a stage's outbox.

    Args:
        value: the type of the struct `value`, which is null for a deletion.
        key_columns: the type of the struct of the columns that make the key.
        payloads: the columns that its sinks send (`spec.Payload.column`); null for a deletion, unless an
            envelope reports it.
    """
    names = [HASH, KEY, ORDINAL, REASON, VALUE, KEY_COLUMNS, *payloads, *WINDOW, TIMESTAMP, AT, SOURCE, SEQ]
    types = {**_TYPES, **payloads, VALUE: value, KEY_COLUMNS: key_columns}
    return pa.schema([(name, types[name]) for name in names])


def window_columns(windowed: bool) -> tuple[str, ...]:
    """Return the window's columns if a stage has windows, for readers that show them only then."""
    return WINDOW if windowed else ()


def parts_of(struct: pa.StructArray) -> dict[str, pa.Array]:
    """Return the columns in `value` or `key_columns`, by name; all of them are null where the
    struct is null.
    """
    return {field.name: pc.struct_field(struct, field.name) for field in struct.type}
